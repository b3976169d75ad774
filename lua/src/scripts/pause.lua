-- pause: stops a budget's sends, or lets them go on. A send whose slot comes meanwhile is put back for up to a minute at a
-- time, and is booked again when the pause is over.
--
-- KEYS[1] cal: string, the budget's calendar; TTL past its last booked second
-- KEYS[2] policy: hash, the budget's policy; no TTL
-- ARGV[1] pause: '<d' how long (us from now; 0: go on)
--
-- Returns: {known, now, paused}
--   known 0 no policy, 1 done; now: us since 1970; paused: the end of the pause, us since 1970, 0: none
local pause_for = sunpack('<d', ARGV[1])
