-- settle, general path: everything but `sent` on a known record.
local has_policy = load_header()
local rec = fetch(record)
local function action(code, wait, rseq, attempts, reason) 
  return { code, now, ceil(wait), rseq, attempts, reason or 0, lead or 0 }
end

local function end_as(state, reason)
  rec.state, rec.issuer = state, tag
  store(KEYS[3], rec)
  finish()
  return action(3, 0, rec.seq, rec.attempts, reason)
end

-- Somebody else holds the record, or nobody does.
local function not_mine()
  if not rec then return action(2, 0, seq, 0) end
  local told = ({ [FAILED] = 2, [EXPIRED] = 3, [UNKNOWN] = 4 })[rec.state]
  if told and rec.issuer == tag then return action(3, 0, rec.seq, rec.attempts, told) end
  if told or rec.state == SENT or rec.state == CANCELLED then return action(0, 0, rec.seq, rec.attempts) end
  if rec.state == BOOKED and rec.issuer == tag and rec.seq > seq and has_policy and rec.epoch == epoch then
    return action(1, max(0, instant(rec.second, rec.position) - now), rec.seq, rec.attempts)   -- this report, once more
  end
  return action(2, 0, seq, rec.attempts)
end

-- One cooldown for all late replies: a call that began before the last one was set does not extend it.
local function cool_down()
  if cooldown > 0 and now - elapsed >= cool_set then
    cool, cool_set, header_dirty = max(cool, now + cooldown), now, true
  end
end

local function again()
  local ending, wait = book_again(rec, max(now + transit, now + delay, cool), deadline)
  if ending then return end_as(ending[1], ending[2]) end
  if rec.seq == SEQ_MAX then return end_as(FAILED, 6) end
  rec.seq, rec.issuer = rec.seq + 1, tag
  store(KEYS[3], rec, true)
  finish()
  return action(1, wait, rec.seq, rec.attempts)
end

if outcome == 0 then                              -- Redis lost the record: remember at least that it was sent
  local r = blank(seq, lane, cost, digest)
  r.state = SENT
  if has_policy then store(KEYS[3], r, true) else call('SET', KEYS[3], spack(RECORD, SENT, lane, 1, 0, seq, 0, cost, 0, 0, 0, 0, nonce, tag, digest), 'EX', 86400) end
  return action(0, 0, seq, 0)
end
if not rec and has_policy and (outcome == 4 or outcome == 3 and flags % 2 == 0) then
  -- Redis lost the record of a call whose end is known: it is not made again
  rec = blank(seq, lane, cost, digest)
  rec.state, rec.attempts, rec.issuer = outcome == 4 and FAILED or UNKNOWN, 1, tag
  store(KEYS[3], rec, true)
  return action(3, 0, seq, 1, outcome == 4 and 9 or 4)
end
if not rec or rec.state ~= CLAIMED or rec.nonce ~= nonce then return not_mine() end
if outcome == 4 then return end_as(FAILED, 9) end
if not has_policy then return action(2, 0, seq, rec.attempts) end
if outcome == 3 and flags % 2 == 0 then return end_as(UNKNOWN, 4) end
if outcome == 1 or outcome == 5 then rec.attempts = max(0, rec.attempts - 1) end      -- nothing was submitted
if outcome == 1 then rec.throttles = rec.throttles + 1; cool_down() end
if rec.attempts >= max_attempts then
  if outcome == 3 then return end_as(UNKNOWN, 4) end
  return end_as(FAILED, 6)
end
return again()
