-- settle: the worker's report just after the provider call.
--
-- `sent` is recorded from any state; every other outcome only while this nonce holds the record; nothing else leaves an
-- end state. Idempotent for (send ID, seq, nonce).
--
-- KEYS[1] cal: string, the budget's calendar; TTL past its last booked second
-- KEYS[2] policy: hash, the budget's policy; no TTL
-- KEYS[3] record: string, the send's record; TTL slot + dedup_ttl
-- ARGV[1] report: '<BI4I4I4c8BI4dddd' outcome, seq, tag, nonce, digest, extended, cost (units), delay (us from now before
--   which it is not booked again), cooldown (us from now, 0: none), elapsed (us since the call began), deadline (us since
--   1970, 0: none); when extended is 1 then 'c8B' recipient (zero: none), flags (1: the cooldown is the recipient's, else
--   the whole budget's), and the lane's name (empty: default)
--   outcome 0 sent, 1 throttled, 2 unavailable, 3 unknown, 4 rejected, 5 not started
-- Derived keys: as in reserve
--
-- Returns: {action, now, wait, seq, attempts, reason, lead}
--   now: us since 1970; wait: us; seq: the record's (0 when acknowledged); lead: us, how long before its slot a message shall show up
--   action 0 acknowledge, 1 put back with this seq and a new tag after wait (re-booked), 2 put back unchanged (the claim
--     decides), 3 dead
--   reason (dead): 2 failed before, 3 expired, 4 unknown outcome, 6 attempts, 7 cost, 8 too far, 9 rejected
local record = call('GET', KEYS[3])
if record and string.byte(ARGV[1]) == 0 and string.byte(record) % RUN == CLAIMED then
  local called = min(4294967295, max(0, floor(sunpack('<d', ARGV[1], 43) / 1000)))
  call('SETRANGE', KEYS[3], 0, '\3' .. string.sub(record, 2, 22) .. spack('<I6I4', floor(now / 1000), called))
  return { 0, now, 0, 0, 0, 0, 0 }
end
local outcome, seq, tag, nonce, digest, extended, cost, delay, cooldown, elapsed, deadline = sunpack('<BI4I4I4c8BI4dddd', ARGV[1])
