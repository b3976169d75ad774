-- record.lua: a send's record as a table, and its re-booking; joined behind calendar.lua by claim and settle.
local function fetch(packed)
  if not packed then return nil end
  local r, state = {}, 0
  state, r.lane, r.attempts, r.throttles, r.seq, r.hops, r.cost, r.second, r.position, r.epoch, r.lease, r.nonce, r.issuer, r.digest =
    sunpack(RECORD, packed)
  r.state, r.run = state % RUN, state >= RUN
  return r
end

local function blank(seq, lane, cost, digest)
  return { state = BOOKED, run = false, lane = lane, attempts = 0, throttles = 0, seq = seq, hops = 0, cost = cost, second = 0,
    position = 0, epoch = 0, lease = 0, nonce = 0, issuer = 0, digest = digest }
end

-- anew: with a new time to live, past its slot; else the old one is kept
local function store(key, r, anew)
  local packed = spack(RECORD, r.state + (r.run and RUN or 0), r.lane, min(255, r.attempts), min(255, r.throttles), r.seq, r.hops,
    r.cost, r.second, r.position, r.epoch, r.lease, r.nonce, r.issuer, r.digest)
  if anew then call('SET', key, packed, 'EX', record_ttl(max(r.second, now_s))) else call('SET', key, packed, 'KEEPTTL') end
end

-- Moves r to the first free place from `start` on. Returns nil and the wait (us), or {end state, reason} when there is
-- none in time: the deadline, the cost, or 14 days.
local function book_again(r, start, deadline)
  if r.cost > max_cost then return { FAILED, 7 } end
  local place, s, p, at = look_up(r.cost, start, FAR)
  if not place then return { FAILED, 8 } end
  if deadline > 0 and at > deadline then return { EXPIRED, 3 } end
  take(place)
  r.state, r.run, r.second, r.position, r.epoch, r.lease, r.nonce = BOOKED, #place > 1, s, p, epoch, 0, 0
  return nil, max(0, at - now)
end
