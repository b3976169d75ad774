-- reserve, general path: from the first send that the straight-line part left.
if not load_header() then return { now } end
out[2] = lead
local not_before_start = max(now + transit, cool)
local codes = { [CLAIMED] = 3, [SENT] = 4, [CANCELLED] = 5, [FAILED] = 6, [EXPIRED] = 7, [UNKNOWN] = 8 }

local function answer(code, seq, s, p, wait) return spack('<BI4I4I4i8', code, seq, s, p, wait) end

-- A booking stands while its slot, with the grace, is ahead and still inside its second's capacity.
local function stands(state, cost, s, p, record_epoch)
  return record_epoch == epoch and instant(s, p) + grace >= now and p + (state >= RUN and 1 or cost) <= (grid(s))
end

local function book(key, seq, attempts, throttles, hops, digest, lane, cost, not_before, deadline)
  if cost > max_cost then return answer(11, 0, 0, max_cost, 0) end
  local start = max(not_before_start, ceil(not_before / SECOND) * SECOND)
  local place, s, p, at = look_up(cost, start, horizon)
  if not place then return answer(10, 0, 0, 0, s - now) end
  if deadline > 0 and at > deadline then return answer(9, 0, s, p, at - now) end
  if at - now > horizon * SECOND then return answer(10, 0, s, p, at - now) end
  take(place)
  local state = #place > 1 and BOOKED + RUN or BOOKED
  call('SET', key, spack(RECORD, state, lane, attempts, throttles, seq, hops, cost, s, p, epoch, 0, 0, 0, digest), 'EX', record_ttl(s))
  return answer(0, seq, s, p, at - now)
end

local function reserve_one(key, digest, lane, cost, not_before, deadline)
  local record = call('GET', key)
  if not record then return book(key, 1, 0, 0, 0, digest, lane, cost, not_before, deadline) end
  local state, _, attempts, throttles, seq, hops, _, s, p, record_epoch, _, _, _, record_digest = sunpack(RECORD, record)
  if record_digest ~= digest then return answer(2, seq, 0, 0, 0) end
  if state % RUN ~= BOOKED then return answer(codes[state % RUN], seq, s, p, 0) end
  if stands(state, cost, s, p, record_epoch) then return answer(1, seq, s, p, instant(s, p) - now) end
  return book(key, seq + 1, attempts, throttles, hops, digest, lane, cost, not_before, deadline)
end

while i <= n do
  out[i + 2] = reserve_one(KEYS[i + 2], sunpack('<c8BI4dd', ARGV[i]))
  i = i + 1
end
finish()
return out
