-- status, general path; nothing is written.
local header = call('GETRANGE', CAL, 0, HEADER_BYTES - 1)
local known = #header >= 196 and (string.byte(header, 63) == 0 or #header == HEADER_BYTES)
if not known then
  -- a pause outlives the calendar
  local paused = tonumber(call('HGET', POLICY, 'paused') or 0)
  if paused > now then answer[5] = paused end
  local compiled = call('HGET', POLICY, 'compiled') or ''
  if #compiled >= 60 then answer[9] = sunpack('<I4', compiled, 57) end
else
  C.unpack_header(C.up_to_date(header))
  C.load_tables()
  C.follow_lag()
  if H.cool > now then answer[3] = H.cool end
  local seconds = ceil((call('STRLEN', CAL) - HEADER_BYTES) / 4)
  if seconds > 0 then answer[4] = C.instant(H.base + seconds - 1, 0) + SECOND end
  if H.paused > now then answer[5] = H.paused end
  answer[6] = H.level
  answer[7], answer[8] = C.rate_at(now_s)
  answer[9] = H.lead
end
-- The instant that holds now for a send that waits, and 1 when it stands there: 0, it will move at its claim, about to there. 0 for
-- both while the budget is paused without an end: nobody knows.
local LOOKS = 1500
function C.told(r)
  local at = C.instant(r.second, r.position)
  if r.state ~= BOOKED then return at, 1 end
  if H.frozen > 0 then return 0, 0 end
  at = max(at, H.rest)
  load_seconds()
  local need = r.run and 1 or r.cost
  local displaced = not r.own and not r.run and r.second <= H.pre_until and C.marked(C.marks(r.second), r.position, r.cost)
  local cooled = at < H.cool and H.rest < H.cool
  if not displaced and not cooled and r.position + need <= (C.grid(r.second)) then return at, 1 end
  -- behind what is booked, and behind those before it that have to move as well
  local from, before, over = cooled and C.second_of(H.cool) or now_s + 1, 0, 0
  for s = now_s, min(r.second - 1, now_s + LOOKS) do over = over + max(0, C.get(C.high_water, s) % HOLES - C.grid(s)) end
  over = over + max(0, r.position + need - C.grid(r.second))
  for s = from, from + LOOKS do
    local room = C.grid(s)
    local free = room - min(room, C.get(C.high_water, s) % HOLES)
    if before + free >= over and free > 0 then return max(at, C.instant(s, room - free + max(0, over - before - 1))), 0 end
    before = before + free
  end
  return max(at, C.instant(from + LOOKS, 0)), 0
end

if record then
  load_record()
  local r, at = C.fetch(record), 0
  local stands = 1
  if known and r.epoch == H.epoch then at, stands = C.told(r) end
  local called, held = 0, 0
  if r.state == SENT then called, held = C.call_of(r.nonce) end
  local lane = r.lane == 0 and 'default' or ''
  for name, i in pairs(lane_id) do if i == r.lane then lane = name end end
  for _, v in ipairs({ r.state, r.seq, r.attempts, r.throttles, r.hops, r.cost, r.second, r.position, at, stands, r.time, C.origin(r),
    called, held, lane,
    call('GET', PREFIX .. 'd:' .. string.sub(KEYS[3], #PREFIX + 3)) or '' }) do answer[#answer + 1] = v end
  for _, move in ipairs(call('LRANGE', PREFIX .. 'h:' .. string.sub(KEYS[3], #PREFIX + 3), 0, -1)) do answer[#answer + 1] = move end
end
return answer
