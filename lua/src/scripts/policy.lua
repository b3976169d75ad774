-- policy: sets a budget's policy, for the next booking in every process and for what is already booked.
--
-- A lower rate holds at once (bookings above the new capacity move at their claim); a higher one from second
-- now + lead + 2 on, since earlier it would turn waiting sends into missed ones.
--
-- KEYS[1] cal: string, the budget's calendar; TTL past its last booked second
-- KEYS[2] policy: hash, the budget's policy; no TTL
-- ARGV[1] compiled: string, 128 bytes, the header of a new calendar (HEADER in calendar.lua)
-- ARGV[2..] settings: string, name and value in turn, as people set them
--
-- Returns: {version, now, switch}
--   version: 1 for a new policy; now: us since 1970; switch: the second from which the new rate holds, 0: at once
local settings = {}
for j = 2, #ARGV do settings[j - 1] = ARGV[j] end
