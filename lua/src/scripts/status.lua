-- status: what Redis knows of a send, and how far its budget is booked; read only.
--
-- KEYS[1] cal: string, the budget's calendar; TTL past its last booked second
-- KEYS[2] policy: hash, the budget's policy; no TTL
-- KEYS[3] record: string, the send's record; TTL slot + dedup_ttl
--
-- Returns: {now, policy, cool, booked_until} and, with a record, {…, state, seq, attempts, throttles, hops, cost, second,
--   position, at, lease}
--   now, cool (end of the cooldown, 0: none), booked_until (end of the last booked second, 0: none), at (the slot's
--   instant, 0: void) in us since 1970; policy 0 none, 1 there; state as in RECORD of head.lua; lease: its end in ms
local answer = { now, call('HEXISTS', POLICY, 'compiled'), 0, 0 }
local header = call('GETRANGE', CAL, 0, HEADER_BYTES - 1)
local base, epoch, num, den, switch, _, cool, num0, den0
if #header == HEADER_BYTES then
  base, epoch, num, den, switch, _, cool = sunpack('<I4I4I4I4I4I4d', header)
  num0, den0 = sunpack('<I4I4', header, 89)
  if cool > now then answer[3] = cool end
  local seconds = ceil((call('STRLEN', CAL) - HEADER_BYTES) / 4)
  if seconds > 0 then answer[4] = (base + seconds) * 1000000 end
end
local record = call('GET', KEYS[3])
if record then
  local state, _, attempts, throttles, seq, hops, cost, s, p, repoch, lease = sunpack(RECORD, record)
  local at = 0
  if base and repoch == epoch then
    if s < switch then num, den = num0, den0 end
    local x = s % den
    at = s * 1000000 + ceil(((ceil(x * num / den) + p) * den - x * num) * 1000000 / num)
  end
  for _, v in ipairs({ state % RUN, seq, attempts, throttles, hops, cost, s, p, at, lease }) do answer[#answer + 1] = v end
end
return answer
