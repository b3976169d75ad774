-- settle, general path: everything but `sent` on a claimed record.
local has_policy = C.begin()
load_record()
local rec = C.fetch(record)
local recipient, lane, report_flags = nil, 0, 0
if has_policy then recipient, lane, report_flags = C.details(extended, ARGV[1], 62) end
if recipient then load_rules() end
lane = lane or 0
local function action(code, wait, rseq, attempts, reason)
  return { code, now, ceil(wait), rseq, attempts, reason or 0, H.lead or 0 }
end

local function end_as(state, reason)
  C.finish_as(rec, state, tag)
  C.store(KEYS[3], rec)
  if has_policy then C.finish() end
  return action(3, 0, rec.seq, rec.attempts, reason)
end

-- Somebody else holds the record, or nobody does.
local function not_mine()
  if not rec then return action(2, 0, seq, 0) end
  local told = ({ [FAILED] = 2, [EXPIRED] = 3, [UNKNOWN] = 4 })[rec.state]
  if told and rec.issuer == tag then return action(3, 0, rec.seq, rec.attempts, told) end
  if told or rec.state == SENT or rec.state == CANCELLED then return action(0, 0, rec.seq, rec.attempts) end
  if rec.state == BOOKED and rec.issuer == tag and rec.seq > seq and has_policy and rec.epoch == H.epoch then
    return action(1, max(0, C.instant(rec.second, rec.position) - now), rec.seq, rec.attempts)   -- this report, once more
  end
  return action(2, 0, seq, rec.attempts)
end

-- One cooldown for all late replies: a call that began before the last one was set does not extend it.
local function cool_down()
  if report_flags % 2 == 1 then
    recipient = string.sub(ARGV[1], 63, 70)
    load_rules()
    if C.recipient_of(recipient)[1] <= now then C.cool_recipient(recipient, now + cooldown) end
  elseif now - elapsed >= H.cool_set then
    H.cool, H.cool_set, H.dirty = max(H.cool, now + cooldown), now, true
    -- where the calendar is full behind the cooldown, all that is booked keeps its order and leaves so much later
    if H.frozen == 0 and C.full_for(H.cool - now) then C.stand_still(H.cool); C.live_on() end
  end
end

local function again()
  load_book()
  local start, rule = now + H.transit, 0
  if now + delay > start then start = now + delay end
  if max(H.cool, H.rest) > start then start, rule = max(H.cool, H.rest), 3 end
  -- nothing was submitted: what the call was charged comes back
  if rec.epoch == H.epoch and outcome == 1 then C.give_back(rec, nil, recipient, now - elapsed) end
  local ending, wait = C.book_again(KEYS[3], rec, 30 + outcome, start, rule, deadline, recipient, true)
  if ending then return end_as(ending[1], ending[2]) end
  if rec.seq == SEQ_MAX then return end_as(FAILED, 6) end
  rec.seq, rec.issuer = rec.seq + 1, tag
  C.store(KEYS[3], rec, true)
  C.finish()
  return action(1, wait, rec.seq, rec.attempts)
end

-- Sent, whatever the record says: it was booked again in the meantime, or Redis lost it.
local function sent()
  audit(cost, elapsed)
  local r = rec or C.blank(seq, lane, cost, digest)
  if rec and has_policy and rec.state == BOOKED and rec.epoch == H.epoch then
    load_book()
    C.give_back(rec, C.places_in(rec.tail, rec.second, rec.position, rec.cost), recipient)
    C.finish()
  end
  r.issuer, r.state, r.time, r.nonce = C.origin(r), SENT, floor(now / 1000), C.of_call(elapsed, held)
  r.tail = ''
  if rec then C.store(KEYS[3], r)
  elseif has_policy then C.store(KEYS[3], r, true)
  else H.dedup = 86400; C.store(KEYS[3], r, true) end
  return action(0, 0, rec and 0 or seq, 0)
end

local endings = { 'throttled', 'unavailable', 'unknown', 'rejected' }
if outcome == 0 then
  if rec and rec.state == SENT then
    -- told once more; or a second call of the send, which began after the first one's lease: that is more than 4 s later
    local called = C.of_call(elapsed, held)
    if math.abs(floor(now / 1000) - C.call_of(called) - (rec.time - C.call_of(rec.nonce))) >= 4000 then
      audit(cost, elapsed)
      rec.time, rec.nonce = floor(now / 1000), called
      C.store(KEYS[3], rec)
    end
    return action(0, 0, 0, 0)
  end
  return sent()
end
if not rec and has_policy and (outcome == 4 or outcome == 3 and H.flags % 2 == 0) then
  -- Redis lost the record of a call whose end is known: it is not made again
  audit(cost, elapsed, endings[outcome])
  rec = C.blank(seq, lane, cost, digest)
  rec.state, rec.attempts, rec.issuer, rec.time = outcome == 4 and FAILED or UNKNOWN, 1, tag, floor(now / 1000)
  C.store(KEYS[3], rec, true)
  return action(3, 0, seq, 1, outcome == 4 and 9 or 4)
end
if not rec or rec.state ~= CLAIMED or rec.nonce ~= nonce then return not_mine() end
if outcome < 5 and (has_policy or outcome == 4) then audit(cost, elapsed, endings[outcome]) end   -- the record leaves `claimed`: once
if outcome == 4 then return end_as(FAILED, 9) end
if not has_policy then return action(2, 0, seq, rec.attempts) end
if outcome == 3 and H.flags % 2 == 0 then return end_as(UNKNOWN, 4) end
if outcome == 5 then
  C.unclaim(rec, tag, now - elapsed, recipient)
  C.store(KEYS[3], rec, true)
  C.finish()
  return action(2, 0, seq, rec.attempts)
end
if outcome == 1 then
  rec.attempts = max(0, rec.attempts - 1)         -- nothing was submitted
  rec.throttles = rec.throttles + 1
  C.cut(elapsed)
  if cooldown > 0 then cool_down() end
end
if rec.attempts >= H.max_attempts then
  if outcome == 3 then return end_as(UNKNOWN, 4) end
  return end_as(FAILED, 6)
end
return again()
