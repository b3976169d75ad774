-- quote: when a number of sends would leave if they were offered now; it books nothing.
--
-- A long quote is asked in parts, a few ms of work each, so that others get in between: each goes on where the last one stopped.
--
-- KEYS[1] cal: string, the budget's calendar; TTL past its last booked second
-- KEYS[2] policy: hash, the budget's policy; no TTL
-- ARGV[1] question: '<I4I4d' sends, cost (units), not_before (us since 1970, 0: none)
-- ARGV[2] lane: string, the lane's name
-- ARGV[3] rest: string, as the last part answered it; empty: this is the first
-- Derived keys: as in reserve
--
-- Returns: {code, now, placed, first, last, rule, rest, hour 1, placed 1, hour 2, …}
--   code 0 all placed, 1 ask again for the others, with rest, 2 the others are too far, 3 the others are full (longer than the lane's
--     longest wait), 4 cost too large (placed: the largest cost allowed), 5 unknown lane, 6 no policy; first, last: instants of
--     these sends, us since 1970, 0: none; rule that bound the last one (RULES in book.lua; 8 the
--     budget is paused, 9 without an end: the instants are as if it went on now); rest: where this part stopped (REST in
--     quote_general.lua); hour: its start, s since 1970, with the sends that leave in it
local count, cost, not_before = sunpack('<I4I4d', ARGV[1])
local rest, to_lane = ARGV[3], ARGV[2]
