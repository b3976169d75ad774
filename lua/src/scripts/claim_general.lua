-- claim, general path: the rows of the verdict table, in their order.
local has_policy = C.begin()
load_record()
local rec = C.fetch(record)
local recipient, lane
if has_policy then recipient, lane = C.details(extended, ARGV[1], 53) end
if recipient then load_rules() end
lane = lane or 0                                  -- a lane that is no longer one: the send is not lost
local function verdict(code, wait, rseq, attempts, reason)
  return { code, now, ceil(wait), rseq, attempts, reason or 0, H.lead or 0, rec and rec.throttles or 0 }
end
local function dead(rseq, attempts, reason) return verdict(3, 0, rseq, attempts, reason) end

-- Ends the record as `state`, told to this copy: only its tag hears `dead` again.
local function end_as(state, reason)
  local r = rec or C.blank(seq, lane, cost, digest)
  C.finish_as(r, state, tag)
  C.store(KEYS[3], r, not rec)
  if has_policy then C.finish() end
  return dead(r.seq, r.attempts, reason)
end

-- From when a send may be booked again, and which rule says so.
local function from_now()
  local start, rule = now, 0
  if max(H.cool, H.rest) > start then start, rule = max(H.cool, H.rest), 3 end
  if not_before > start then start, rule = ceil(not_before / SECOND) * SECOND, 2 end
  return start, rule
end

-- A new booking for this copy. near: when the slot is close the copy stays here and seq stays.
local function rebook(why, near, new_seq, from, from_rule)
  load_book()
  local r = rec or C.blank(seq, lane, cost, digest)
  local start, rule = from_now()
  if from and from > start then start, rule = from, from_rule end
  if rec and r.epoch == H.epoch and r.state == BOOKED then
    -- what lies ahead of its place goes back to others
    C.give_back(r, C.places_in(r.tail, r.second, r.position, r.cost), recipient)
  elseif rec and recipient and H.spacing > 0 then
    C.refund_recipient(recipient, r.second, r.position)
  end
  local outcome, wait = C.book_again(KEYS[3], r, why, start, rule, deadline, recipient, why == 21 or why == 22 or why == 24)
  if outcome then return end_as(outcome[1], outcome[2]) end
  local stay = near and wait <= H.lead + SECOND
  if not stay then
    if (new_seq or r.seq + 1) > SEQ_MAX then return end_as(FAILED, 6) end
    r.seq, r.issuer = new_seq or r.seq + 1, tag
  end
  C.store(KEYS[3], r, true)
  C.finish()
  return verdict(stay and 1 or 7, wait, r.seq, r.attempts, why)
end

-- What a record in its end state says to a copy; nil when it is not in one.
local function ended()
  if rec.state == SENT or rec.state == CANCELLED then return verdict(2, 0, rec.seq, rec.attempts) end
  local reason = ({ [FAILED] = 2, [EXPIRED] = 3, [UNKNOWN] = 4 })[rec.state]
  if not reason then return nil end
  if rec.issuer ~= tag then return verdict(2, 0, rec.seq, rec.attempts) end
  return dead(rec.seq, rec.attempts, reason)
end

-- The record is claimed: the call is made after `delay`.
local function sending(delay)
  local rest = min(delay + lease_ms * 1000, rec.time * 1000 - now)
  return { 0, now, ceil(rest), rec.seq, rec.attempts, ceil(delay), H.jitter, rec.throttles }
end

-- The call is made after `delay`. Quotas and spacing are laws as well: what was called counts, whatever was booked.
local function send(at, delay)
  if delay > 0 then delay = ceil((now + max(1000, delay)) / 1000) * 1000 - now end     -- the record keeps the millisecond
  local call_at = now + delay
  if deadline > 0 and call_at > deadline then return rebook(22, true) end
  for _, q in ipairs(C.quotas) do
    local w = C.window(q, call_at)
    if C.window_use(q, w)[2] + rec.cost > q.limit then return rebook(27, true, nil, C.window_start(q, w + 1), 4) end
  end
  local ruled = recipient or H.has_quotas
  if ruled and C.intrudes(at, call_at, rec.cost, recipient) and C.times_moved(KEYS[3], 22) < MOVES_MOST then return rebook(22, true) end
  local spaced = recipient and H.spacing > 0 and C.claim_recipient(recipient, rec.second, rec.position, call_at)
  if spaced then return rebook(29, true, nil, ceil(spaced / SECOND) * SECOND, 5) end
  if ruled then C.count_call(at, call_at, rec.cost, 1) end
  if C.heavy(rec.cost) then load_heavy(); C.note_call(call_at, rec.cost) end
  if call_at - H.base * SECOND > H.tat then H.tat, H.lifted = call_at - H.base * SECOND, call_at - H.base * SECOND end
  H.tat, H.dirty = H.tat + rec.cost * H.gap, true
  if not rec.own and rec.cost > 1 then            -- it leaves at once: nobody takes the rest of its units over
    load_seconds()
    for _, t in ipairs(C.places_in(rec.tail, rec.second, rec.position, rec.cost)) do
      if C.instant(t[1], t[2] + t[3]) > now then C.set_marks(t[1], t[2], t[3], 1) end
    end
  end
  rec.issuer, rec.tail = rec.nonce, ''
  rec.state, rec.nonce, rec.attempts, rec.time = CLAIMED, nonce, rec.attempts + 1, ceil(call_at / 1000) + lease_ms
  C.store(KEYS[3], rec, true)                       -- it may be long past its slot: the end counts from now
  C.finish()
  return sending(delay)
end

local due

-- How long nobody called although slots came, before this one too (us): no worker was there.
local function lost_time(idle)
  load_seconds()
  idle = min(idle, now - H.rest)
  local s = max(H.base, floor((now - H.lag - idle) / SECOND))
  while s < rec.second and (C.get(C.high_water, s) == 0 or C.get(C.high_water, s) >= HOLES) do s = s + 1 end
  return min(idle, now - H.lag - s * SECOND)
end

-- The slot has come: the guard decides, and lateness is no offence. What the guard lets pass a little later is charged for that
-- instant. Beyond the patience a send passes only where capacity lies idle; else it is booked again. When all workers were away and
-- the calendar is full, the calendar stood still meanwhile.
local function at_slot(at)
  local charge, idle = rec.cost * H.gap, now - H.base * SECOND - H.tat
  if now - at > PATIENCE and idle > PATIENCE and now - H.rest > PATIENCE then
    local lost = lost_time(idle)
    if lost > PATIENCE and C.full_for(lost) then
      H.rest = now
      C.set_lag(H.lag + lost)
      C.live_on()
      return due()
    end
  end
  local late = now - at
  if late > PATIENCE then
    if idle >= charge then return send(at, 0) end
  else
    local delay = max(0, charge - H.slack - idle)
    if delay > 0 and C.heavy(rec.cost) then load_heavy(); delay = min(delay, C.counted_delay(rec.cost)) end
    if late + delay <= PATIENCE then
      -- what was left unused before a send in time makes the lag good, slowly: copies are told their instants 2 s ahead
      local since = min(idle, now - H.rest)
      local unused = since - late - (H.den * SECOND / H.num - H.gap)
      if H.lag > 0 and unused > 0 then C.set_lag(H.lag - min(unused, since / 20)) end
      return send(at, delay)
    end
  end
  return rebook(22, true)
end

-- Puts the copy back for a wait that no worker sits out.
local function hop(wait, reason)
  if rec.seq == SEQ_MAX then return end_as(FAILED, 6) end
  rec.seq, rec.issuer, rec.hops = rec.seq + 1, tag, min(65535, rec.hops + 1)
  C.store(KEYS[3], rec, true)
  C.finish()
  return verdict(6, wait, rec.seq, rec.attempts, reason)
end

-- A paused budget's copy comes back each minute, later the longer the pause lasts. The first ones, and those before which nobody
-- waited, stay with their workers, so that they leave as soon as it goes on.
local HEAD, TRIP, TRIP_MOST = 20, 60 * SECOND, 890 * SECOND
local function wait_for_the_end_of_the_pause(at)
  local goes_on = H.frozen > 0 and now or H.rest
  if C.origin(rec) % 16 == 0 or (at - goes_on - H.transit) * H.num < HEAD * H.den * SECOND then
    C.finish()
    return verdict(1, min(H.lead + SECOND, max(0, at - goes_on) + 2 * SECOND), rec.seq, rec.attempts)
  end
  local trip = min(TRIP_MOST, max(TRIP, (now - tonumber(call('HGET', POLICY, 'paused_at') or now)) / 10)) + H.lead
  if H.frozen == 0 then trip = min(trip, at - now) end
  if deadline > 0 then trip = min(trip, deadline - now + SECOND + H.lead) end
  return hop(trip, 28)
end

-- After the rate was raised: whether there is an earlier place for it by now, by half a second at least.
local function earlier_than(at)
  load_book()
  local start, rule = from_now()
  if at - start < SECOND / 2 then return false end
  local s, _, found = C.look_up(rec.lane, rec.cost, start, rule, rec.second - C.second_of(start), recipient, false)
  return s and found < at - SECOND / 2
end

-- The record's slot: where it stands, and what is said at it.
function due()
  local at = C.instant(rec.second, rec.position)
  -- what moved its instant behind its deadline: an earlier place, or none
  if deadline > 0 and max(at, H.rest) > deadline and H.frozen == 0 then return rebook(H.lag > 0 and 21 or 23, true) end
  if rec.second <= H.pull_until and H.rest <= now and H.paused <= now and earlier_than(at) then return rebook(26, true) end
  local opens = max(at, H.rest)                     -- while the calendar stands still nothing leaves
  if H.paused > now and (H.frozen > 0 or opens - now > H.lead + SECOND) then return wait_for_the_end_of_the_pause(at) end
  if opens - now > H.lead + SECOND then return hop(opens - now) end
  if at < H.cool and H.rest < H.cool or recipient and at < C.recipient_of(recipient)[1] then return rebook(21, true) end
  if not rec.own and (rec.second <= H.pre_until or rec.run) then
    load_book()
    if C.displaced(C.places_in(rec.tail, rec.second, rec.position, rec.cost)) then return rebook(25, true) end
  end
  if opens > now then C.finish(); return verdict(1, opens - now, rec.seq, rec.attempts) end
  return at_slot(at)
end

local function booked()
  if seq < rec.seq then
    if rec.issuer ~= tag and rec.issuer ~= 0 then return verdict(2, 0, rec.seq, rec.attempts) end
    if not has_policy then return verdict(8, 0, seq, 0) end
    local wait = rec.epoch == H.epoch and max(0, C.instant(rec.second, rec.position) - now) or 0
    return verdict(5, wait, rec.seq, rec.attempts)
  end
  if deadline > 0 and now > deadline then
    if has_policy and rec.epoch == H.epoch then
      load_book()
      C.give_back(rec, C.places_in(rec.tail, rec.second, rec.position, rec.cost), recipient)
    end
    return end_as(EXPIRED, 3)
  end
  if not has_policy then return verdict(8, 0, seq, 0) end
  if rec.epoch ~= H.epoch or seq > rec.seq then return rebook(20, false, max(seq, rec.seq) + 1) end
  -- before the hop: a position above a lowered capacity has no instant of its own
  local room = C.grid(rec.second)
  if rec.position + (rec.run and 1 or rec.cost) > room then return rebook(23, true) end
  return due()
end

-- A claimed record: this delivery asks again, a stale copy, a running lease, or a worker that died.
local function claimed()
  if rec.nonce == nonce then
    -- its reply was lost; or it was asked on a broken connection, and again on a new one, and this is the first question, while the
    -- call is made. So nothing changes: a worker that hears that it is too late gives the claim back.
    local delay = (rec.time - lease_ms) * 1000 - now
    if delay < 1000 then delay = has_policy and delay < -H.jitter - 1000 and delay or 0 end
    return sending(delay)
  end
  local left = (rec.time - ceil(now / 1000)) * 1000
  if seq < rec.seq then return verdict(2, 0, rec.seq, rec.attempts) end
  if left > 0 then return verdict(4, left, rec.seq, rec.attempts) end
  if not has_policy then return verdict(8, 0, seq, 0) end
  if H.flags % 2 == 0 then return end_as(UNKNOWN, 4) end
  if rec.attempts >= H.max_attempts then return end_as(UNKNOWN, 4) end
  return rebook(24, false)
end

-- No record: never booked, or lost with Redis' data.
local function missing()
  if not has_policy then return verdict(8, 0, seq, 0) end
  if deadline > 0 and now > deadline then return end_as(EXPIRED, 3) end
  local kept, before = H.dedup, call('HMGET', POLICY, 'dedup_before', 'dedup_before_until')
  if tonumber(before[2] or 0) * SECOND > now then kept = min(kept, tonumber(before[1])) end
  if copy_at > 0 and now - copy_at > kept * SECOND then return end_as(UNKNOWN, 5) end
  -- A booked copy without a record in a calendar younger than `per`: all was lost, the policy too, and was set again. What
  -- was just sent is unknown, as in new_calendar.
  local age = (floor(now / 1000) + 1 - H.epoch) % 4294967295
  if copy_at > 0 and age < H.per then
    H.cool, H.cool_set, H.dirty = max(H.cool, now + (H.per - age) * 1000), now, true
  end
  return rebook(20, false)
end

if not rec then return missing() end
if rec.digest ~= digest and rec.state ~= CANCELLED then return dead(rec.seq, rec.attempts, 1) end
local answer = ended()
if answer then return answer end
if rec.state == CLAIMED then return claimed() end
return booked()
