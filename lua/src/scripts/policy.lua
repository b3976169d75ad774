-- policy: sets a budget's policy, for the next booking in every process and for what is already booked.
--
-- A lower rate holds at once (bookings above the new capacity move at their claim); a higher one from second
-- now + lead + 2 on, since earlier it would turn waiting sends into missed ones; what waits then takes an earlier place when its
-- copy wakes up.
--
-- KEYS[1] cal: string, the budget's calendar; TTL past its last booked second
-- KEYS[2] policy: hash, the budget's policy; no TTL
-- ARGV[1] compiled: string, 232 bytes, the header of a new calendar (HEADER in header.lua)
-- ARGV[2] lanes: string, '<BI4I4B' and name for each: flags (1: preempts), share (ten-thousandths), longest wait (s, 0: none),
--   length of the name
-- ARGV[3] quotas: string, '<I4I4i4' for each: units, length of the window (s), offset of its start to UTC (s)
-- ARGV[4] segments: string, '<I4I4I4dddBB' for each part of the ramp, ascending: first second, num, den, gap, slack, burst,
--   floor and ceiling of the adaptive level
-- ARGV[5..] settings: string, name and value in turn, as people set them; behind `seed` and an empty text: only if there is no
--   policy
--
-- Returns: {version, now, switch}
--   version: 1 for a new policy, 0: there is one, and nothing was set; now: us since 1970; switch: the second from which the new rate holds, 0: at once
local settings, first = {}, 5
if ARGV[5] == 'seed' then
  if call('HEXISTS', POLICY, 'compiled') == 1 then return { 0, now, 0 } end
  first = 7
end
for j = first, #ARGV do settings[j - first + 1] = ARGV[j] end
