-- claim, general path: the rows of the verdict table, in their order.
local has_policy = load_header()
local rec = fetch(record)
local function verdict(code, wait, rseq, attempts, reason) 
  return { code, now, ceil(wait), rseq, attempts, reason or 0, lead or 0, rec and rec.throttles or 0 }
end
local function dead(rseq, attempts, reason) return verdict(3, 0, rseq, attempts, reason) end

-- Ends the record as `state`, told to this copy: only its tag hears `dead` again.
local function end_as(state, reason)
  local r = rec or blank(seq, lane, cost, digest)
  r.state, r.issuer = state, tag
  store(KEYS[3], r, not rec)
  return dead(r.seq, r.attempts, reason)
end

-- A new booking for this copy. near: when the slot is close the copy stays here and seq stays.
local function rebook(why, near, new_seq)
  local r = rec or blank(seq, lane, cost, digest)
  local outcome, wait = book_again(r, max(now, cool, ceil(not_before / SECOND) * SECOND), deadline)
  if outcome then return end_as(outcome[1], outcome[2]) end
  local stay = near and wait <= lead + SECOND
  if not stay then
    if (new_seq or r.seq + 1) > SEQ_MAX then return end_as(FAILED, 6) end
    r.seq, r.issuer = new_seq or r.seq + 1, tag
  end
  store(KEYS[3], r, true)
  finish()
  return verdict(stay and 1 or 7, wait, r.seq, r.attempts, why)
end

-- A claimed record: this delivery asks again, a stale copy, a running lease, or a worker that died.
local function claimed()
  local left = (rec.lease - ceil(now / 1000)) * 1000
  if rec.nonce == nonce then return verdict(0, left, rec.seq, rec.attempts) end
  if seq < rec.seq then return verdict(2, 0, rec.seq, rec.attempts) end
  if left > 0 then return verdict(4, left, rec.seq, rec.attempts) end
  if not has_policy then return verdict(8, 0, seq, 0) end
  if flags % 2 == 0 then return end_as(UNKNOWN, 4) end
  if rec.attempts >= max_attempts then return end_as(UNKNOWN, 4) end
  return rebook(24, false)
end

-- What a record in its end state says to a copy; nil when it is not in one.
local function ended()
  if rec.state == SENT or rec.state == CANCELLED then return verdict(2, 0, rec.seq, rec.attempts) end
  local reason = ({ [FAILED] = 2, [EXPIRED] = 3, [UNKNOWN] = 4 })[rec.state]
  if not reason then return nil end
  if rec.issuer ~= tag then return verdict(2, 0, rec.seq, rec.attempts) end
  return dead(rec.seq, rec.attempts, reason)
end

local function send()
  tat, header_dirty = max(tat, now - base * SECOND) + rec.cost * gap, true
  rec.state, rec.nonce, rec.attempts, rec.lease = CLAIMED, nonce, rec.attempts + 1, ceil(now / 1000) + lease_ms
  store(KEYS[3], rec, true)                       -- it may be long past its slot: the end counts from now
  finish()
  return verdict(0, lease_ms * 1000, rec.seq, rec.attempts)
end

-- The slot has come: the guard decides. Late beyond the grace, a send passes only where capacity lies idle.
local function at_slot(late)
  local since, charge = now - base * SECOND, rec.cost * gap
  local need = charge - slack
  if late > grace then need = charge end
  local missing = need - (since - tat)
  if missing <= 0 then return send() end
  if late <= grace and late + missing <= grace then finish(); return verdict(1, missing, rec.seq, rec.attempts) end
  return rebook(22, true)
end

local function booked()
  if seq < rec.seq then
    if rec.issuer ~= tag and rec.issuer ~= 0 then return verdict(2, 0, rec.seq, rec.attempts) end
    if not has_policy then return verdict(8, 0, seq, 0) end
    local wait = rec.epoch == epoch and max(0, instant(rec.second, rec.position) - now) or 0
    return verdict(5, wait, rec.seq, rec.attempts)
  end
  if deadline > 0 and now > deadline then return end_as(EXPIRED, 3) end
  if not has_policy then return verdict(8, 0, seq, 0) end
  if rec.epoch ~= epoch or seq > rec.seq then return rebook(20, false, max(seq, rec.seq) + 1) end
  -- before the hop: a position above a lowered capacity has no instant of its own
  local room = grid(rec.second)
  if rec.position + (rec.run and 1 or rec.cost) > room then return rebook(23, true) end
  local at = instant(rec.second, rec.position)
  if at - now > lead + SECOND then
    if rec.seq == SEQ_MAX then return end_as(FAILED, 6) end
    rec.seq, rec.issuer, rec.hops = rec.seq + 1, tag, min(65535, rec.hops + 1)
    store(KEYS[3], rec)
    finish()
    return verdict(6, at - now, rec.seq, rec.attempts)
  end
  if at < cool then return rebook(21, true) end
  if at > now then finish(); return verdict(1, at - now, rec.seq, rec.attempts) end
  return at_slot(now - at)
end

-- No record: never booked, or lost with Redis' data.
local function missing()
  if not has_policy then return verdict(8, 0, seq, 0) end
  if deadline > 0 and now > deadline then return end_as(EXPIRED, 3) end
  if copy_at > 0 and now - copy_at > dedup * SECOND then return end_as(UNKNOWN, 5) end
  -- A booked copy without a record in a calendar younger than `per`: all was lost, the policy too, and was set again. What
  -- was just sent is unknown, as in new_calendar.
  local age = (floor(now / 1000) + 1 - epoch) % 4294967295
  if copy_at > 0 and age < per then
    cool, cool_set, header_dirty = max(cool, now + (per - age) * 1000), now, true
  end
  return rebook(20, false)
end

if not rec then return missing() end
local answer = ended()
if answer then return answer end
if rec.digest ~= digest then return dead(rec.seq, rec.attempts, 1) end
if rec.state == CLAIMED then return claimed() end
return booked()
