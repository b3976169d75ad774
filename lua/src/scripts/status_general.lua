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
if record then
  load_record()
  local r, at = C.fetch(record), 0
  if known and r.epoch == H.epoch then at = C.instant(r.second, r.position) end
  local called, held = 0, 0
  if r.state == SENT then called, held = C.call_of(r.nonce) end
  local lane = r.lane == 0 and 'default' or ''
  for name, i in pairs(lane_id) do if i == r.lane then lane = name end end
  for _, v in ipairs({ r.state, r.seq, r.attempts, r.throttles, r.hops, r.cost, r.second, r.position, at, r.time, C.origin(r),
    called, held, lane,
    call('GET', PREFIX .. 'd:' .. string.sub(KEYS[3], #PREFIX + 3)) or '' }) do answer[#answer + 1] = v end
  for _, move in ipairs(call('LRANGE', PREFIX .. 'h:' .. string.sub(KEYS[3], #PREFIX + 3), 0, -1)) do answer[#answer + 1] = move end
end
return answer
