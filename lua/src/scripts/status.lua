-- status: what Redis knows of a send, and of its budget; read only.
--
-- KEYS[1] cal: string, the budget's calendar; TTL past its last booked second
-- KEYS[2] policy: hash, the budget's policy; no TTL
-- KEYS[3] record: string, the send's record; TTL slot + dedup_ttl
-- Derived keys: as in reserve
--
-- Returns: {now, policy, cool, booked_until, paused, level, num, den, lead} and, with a record, {…, state, seq, attempts, throttles,
--   hops, cost, second, position, at, stands, time, origin, called, held, lane, receipt, move 1, …}
--   now, cool (end of the cooldown, 0: none), booked_until (end of the last booked second, 0: none), paused (end of the
--   pause, 0: none), at (when it leaves; 0: void, or the budget is paused without an end) in us since 1970; policy 0 none, 1 there;
--   level of the adaptive rate, of 20; num/den: units per second that are booked now; lead: us, how long before its slot a message
--   shall show up; stands 1: its slot is at `at`, 0: it will move, to about there; state and origin as in RECORD of head.lua, time in
--   ms; called: how long before its end the provider call began, held: how long the call was held up before (sent only), ms; lane:
--   its name, empty when it is no longer one; receipt: as in receipt, empty without one; move: '<BBI6I6I6' why (0: booked, 20 … 29
--   as in claim, 30 + outcome as in settle, 40 scheduled again after its slot, 41 redrive), rule that bound the new slot, when, from
--   (0: void) and to which instant (0: there was none before its deadline), ms
local answer = { now, call('HEXISTS', POLICY, 'compiled'), 0, 0, 0, 0, 0, 0, 0 }
local record = call('GET', KEYS[3])
