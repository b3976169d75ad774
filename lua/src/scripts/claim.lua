-- claim: the worker's question just before sending: one copy of a send, one verdict, given at the slot and never before. A
-- send that the guard lets pass a little later is charged for that instant and told to wait inside the call.
--
-- Idempotent for (send ID, seq, nonce).
--
-- KEYS[1] cal: string, the budget's calendar; TTL past its last booked second
-- KEYS[2] policy: hash, the budget's policy; no TTL
-- KEYS[3] record: string, the send's record; TTL slot + dedup_ttl
-- ARGV[1] copy: '<I4I4I4c8BI4dddI4' seq (0: never booked), tag, nonce, digest, extended, cost (units), the copy's slot
--   (us since 1970, 0: none), not_before and deadline (us since 1970, 0: none), lease (ms); when extended is 1 then 'c8B'
--   recipient (zero: none), flags (0), and the lane's name (empty: default)
-- Derived keys: as in reserve
--
-- Returns: {verdict, now, wait, seq, attempts, reason, lead, throttles}
--   now: us since 1970; wait: us; seq: the record's; attempts: counted so far, with this one for `send`; lead: us, how long
--     before its slot a message shall show up; throttles: counted so far
--   verdict 0 send (wait: rest of the lease; reason: us until the call, negative: it should have been made so long ago; lead: us that may pass between that and the call), 1 wait (until the slot), 2 done, 3 dead, 4 busy (until the lease ends),
--     5 reissue (until the record's slot), 6 hop (until the slot), 7 rebooked (until the new slot), 8 hold (no policy)
--   reason (dead): 1 conflict, 2 failed before, 3 expired, 4 unknown outcome, 5 unknown history, 6 attempts, 7 cost,
--     8 too far, 10 expired since it was displaced, 11 since a cooldown came, 12 since it was late; (rebooked, and wait after a re-booking): 20 lost, 21 cooldown, 22 missed, 23 capacity, 24 lease ended,
--     25 displaced, 26 the rate was raised, 27 quota, 29 spacing; (hop): 28 paused
local seq, tag, nonce, digest, extended, cost, copy_at, not_before, deadline, lease_ms = sunpack('<I4I4I4c8BI4dddI4', ARGV[1])
local record = call('GET', KEYS[3])
local header = call('GETRANGE', CAL, 0, 63)
if record and #header == 64 and string.byte(header, 63) == LAYOUT then
  -- Common case: booked, this very copy, this calendar, no cooldown over the slot, inside its capacity, in time.
  local base, epoch, num, den, switch, jitter, cool, tat, gap, slack, lead = sunpack('<I4I4I4I4I4I4ddddI4', header)
  local state, rlane, attempts, throttles, rseq, hops, rcost, s, p, repoch, _, origin, _, rdigest = sunpack(RECORD, record)
  if state % RUN == SENT and rdigest == digest then return { 2, now, 0, rseq, attempts, 0, lead, throttles } end
  if state == BOOKED and rseq == seq and repoch == epoch and rdigest == digest and s >= switch
    and (deadline == 0 or now <= deadline) and string.byte(header, 64) % 2 == 0 then            -- see `detours` in header.lua
    local x = s % den
    local before = ceil(x * num / den)
    local at = s * 1000000 + ceil(((before + p) * den - x * num) * 1000000 / num)
    if at >= cool and p + rcost <= ceil((x + 1) * num / den) - before then
      if at > now then
        if at - now <= lead + 1000000 and (deadline == 0 or at <= deadline) then
          return { 1, now, at - now, seq, attempts, 0, lead, throttles }
        end
      else
        local since, charge = now - base * 1000000, rcost * gap
        -- the guard is the law; heavy sends are noted, and what reaches far ahead is marked, on the general path
        if now - at <= PATIENCE and since - tat >= charge - slack and (rcost == 1 or charge <= slack and charge <= 100000)
          and string.byte(header, 64) < 4 then
          call('SETRANGE', CAL, 32, spack('<d', max(tat, since) + charge))
          if since > tat then call('SETRANGE', CAL, HEADER_BYTES - 8, spack('<d', since)) end
          call('SET', KEYS[3], spack(RECORD, CLAIMED, rlane, attempts + 1, throttles, seq, hops, rcost, s, p, repoch,
            ceil(now / 1000) + lease_ms, nonce, origin, digest), 'KEEPTTL')
          return { 0, now, lease_ms * 1000, seq, attempts + 1, 0, jitter, throttles }
        end
      end
    end
  end
end
