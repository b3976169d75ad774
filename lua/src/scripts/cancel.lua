-- cancel: ends a send that no worker has claimed; what its slot holds comes back and is used next.
--
-- An ID that is not known leaves a tombstone, since its copy may travel unbooked: it is never sent.
--
-- KEYS[1] cal: string, the budget's calendar; TTL past its last booked second
-- KEYS[2] policy: hash, the budget's policy; no TTL
-- KEYS[3] record: string, the send's record; TTL slot + dedup_ttl
-- Derived keys: as in reserve
--
-- Returns: {state, now}
--   state (RECORD of head.lua) before the call: 0 unknown ID, 1 booked: it is cancelled now, 2 claimed: too late, 3 sent,
--     4 cancelled before, 5 failed, 6 expired, 7 unknown outcome; now: us since 1970
local record = call('GET', KEYS[3])
local state = record and string.byte(record) % RUN
if state == CANCELLED and sunpack('<H', record, 5) == 0 then return { 0, now } end
if record and state ~= BOOKED then return { state, now } end
