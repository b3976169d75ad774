-- settle: the worker's report just after the provider call.
--
-- `sent` is recorded from any state; every other outcome only while this nonce holds the record; nothing else leaves an
-- end state. Idempotent for (send ID, seq, nonce).
--
-- KEYS[1] cal: string, the budget's calendar; TTL past its last booked second
-- KEYS[2] policy: hash, the budget's policy; no TTL
-- KEYS[3] record: string, the send's record; TTL slot + dedup_ttl
-- ARGV[1] report: '<BI4I4I4c8BI4dddI4d' outcome, seq, tag, nonce, digest, extended, cost (units), delay (us from now before
--   which it is not booked again), cooldown (us from now, 0: none), elapsed (us since the call began; not started: since it should have), held up (us
--   between the instant that was claimed for the call and the call; kept of one that was sent), deadline (us since 1970, 0: none); when extended is 1 then 'c8B' recipient (zero: none), flags (1: the cooldown is the recipient's, else
--   the whole budget's), and the lane's name (empty: default)
--   outcome 0 sent, 1 throttled, 2 unavailable, 3 unknown, 4 rejected, 5 not started
-- Derived keys: as in reserve, and of the call that is reported, by the minute (since 1970) in which it began:
--   au:<minute>: string, '<I2' ms within the minute of each call of cost 1, '<I2I2I4' 65535, ms, cost of each other one
--   en:<minute>: hash, outcome to number of calls, of those that did not end as sent
--   TTL of both: a day, or as long as 16777216 units take at the budget's rate if that is shorter
--
-- Returns: {action, now, wait, seq, attempts, reason, lead}
--   now: us since 1970; wait: us; seq: the record's (0 when acknowledged); lead: us, how long before its slot a message shall show up
--   action 0 acknowledge, 1 put back with this seq and a new tag after wait (re-booked), 2 put back unchanged (the claim
--     decides), 3 dead
--   reason (dead): 2 failed before, 3 expired, 4 unknown outcome, 6 attempts, 7 cost, 8 too far, 9 rejected, 11 expired since a cooldown came
local record = call('GET', KEYS[3])
-- Notes the call; called once for each.
local function audit(cost, elapsed, ending)
  local began = max(0, now - max(0, elapsed))
  local minute = floor(began / 60000000)
  local entry = spack('<I2', floor((began - minute * 60000000) / 1000))
  if cost ~= 1 then entry = '\255\255' .. entry .. spack('<I4', cost) end
  local calls = string.sub(CAL, 1, -4) .. 'au:' .. minute
  local endings = ending and string.sub(CAL, 1, -4) .. 'en:' .. minute
  local first, first_ending = call('APPEND', calls, entry) == #entry, ending and call('HINCRBY', endings, ending, 1) == 1
  if first or first_ending then
    local h, ttl = call('GETRANGE', CAL, 8, 15), 86400
    if #h == 8 then
      local num, den = sunpack('<I4I4', h)
      ttl = max(120, min(ttl, floor(16777216 * den / max(1, num))))
    end
    if first then call('EXPIRE', calls, ttl) end
    if first_ending then call('EXPIRE', endings, ttl) end
  end
end
if record and string.byte(ARGV[1]) == 0 and string.byte(record) % RUN == CLAIMED then
  local cost, _, _, elapsed, held = sunpack('<I4dddI4', ARGV[1], 23)
  if elapsed < HELD * 1000 then
    audit(cost, elapsed)
    local called = floor(max(0, elapsed) / 1000) + HELD * min(1022, floor(held / 1000))     -- as C.of_call
    call('SETRANGE', KEYS[3], 0, '\3' .. string.sub(record, 2, 22) .. spack('<I6I4', floor(now / 1000), called))
    return { 0, now, 0, 0, 0, 0, 0 }
  end
end
local outcome, seq, tag, nonce, digest, extended, cost, delay, cooldown, elapsed, held, deadline = sunpack('<BI4I4I4c8BI4dddI4d', ARGV[1])
