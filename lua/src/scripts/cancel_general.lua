-- cancel, general path: a booked send, or none.
local has_policy = C.begin()
load_record()
local rec = C.fetch(record)
if not has_policy then H.dedup = 86400 end
if rec then
  if has_policy and rec.epoch == H.epoch then
    load_book()
    load_rules()
    C.give_back(rec, C.places_in(rec.tail, rec.second, rec.position, rec.cost), C.recipient_in(rec.tail))
  end
  C.finish_as(rec, CANCELLED, 0)
  C.store(KEYS[3], rec)
else
  local r = C.blank(0, 0, 0, '\0\0\0\0\0\0\0\0')
  r.state, r.time = CANCELLED, floor(now / 1000)
  C.store(KEYS[3], r, true)
end
if has_policy then C.finish() end
return { rec and BOOKED or 0, now }
