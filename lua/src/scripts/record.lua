-- record.lua: a send's record as a table, and its re-booking.
local function load_record()
  if C.fetch then return end
  function C.fetch(packed)
    if not packed then return nil end
    local r, state = {}, 0
    state, r.lane, r.attempts, r.throttles, r.seq, r.hops, r.cost, r.second, r.position, r.epoch, r.time, r.nonce, r.issuer, r.digest =
      sunpack(RECORD, packed)
    r.state, r.tail = state % RUN, string.sub(packed, RECORD_BYTES + 1)
    r.run, r.own, r.under = floor(state / RUN) % 2 == 1, floor(state / OWN) % 2 == 1, state >= UNDER
    return r
  end

  function C.blank(seq, lane, cost, digest)
    return { state = BOOKED, run = false, own = false, under = false, lane = lane, attempts = 0, throttles = 0, seq = seq, hops = 0,
      cost = cost, second = 0, position = 0, epoch = 0, time = 0, nonce = 0, issuer = 0, digest = digest, tail = '' }
  end

  function C.origin(r)
    if r.state == CLAIMED or r.state == SENT then return r.issuer end
    return r.nonce
  end

  -- What the nonce of a sent send says: ms from the call's begin to the report, and ms that the call was held up; and back.
  function C.call_of(n)
    local held = floor(n / HELD)
    if held == 1023 then return n % HELD * 1000, 0 end
    return n % HELD, held
  end

  function C.of_call(elapsed, held)
    local ms = floor(max(0, elapsed) / 1000)
    if ms >= HELD then return 1023 * HELD + min(HELD - 1, floor(ms / 1000)) end
    return ms + HELD * min(1022, floor(held / 1000))
  end

  -- anew: with a new time to live, past its slot; else the old one is kept
  function C.store(key, r, anew)
    local state = r.state + (r.run and RUN or 0) + (r.own and OWN or 0) + (r.under and UNDER or 0)
    local packed = spack(RECORD, state, r.lane, min(255, r.attempts), min(255, r.throttles), r.seq, r.hops,
      r.cost, r.second, r.position, r.epoch, r.time, r.nonce, r.issuer, r.digest) .. r.tail
    if anew then call('SET', key, packed, 'EX', C.record_ttl(max(r.second, now_s))) else call('SET', key, packed, 'KEEPTTL') end
  end

  -- The end of a send that was not sent, told to the copy with this tag.
  function C.finish_as(r, state, tag)
    r.nonce, r.state, r.time, r.issuer = C.origin(r), state, floor(now / 1000), tag
    r.tail = ''
  end

  -- The lines of a send's history: why it moved (0: it was booked), which rule bound its slot, when, from and to which instant
  -- (ms). They begin with its first booking, as soon as something moves.
  function C.remember(key, why, rule, from, to, r)
    local history = PREFIX .. 'h:' .. string.sub(key, #PREFIX + 3)
    if r and from > 0 and call('EXISTS', history) == 0 then
      local o = C.origin(r)
      local booked = (r.second - floor(o / 2048)) * 1000 + floor(o / 16) % 128 * 10
      call('RPUSH', history, spack('<BBI6I6I6', 0, o % 16, booked, 0, floor(from / 1000)))
    end
    call('RPUSH', history, spack('<BBI6I6I6', why, rule, floor(now / 1000), floor(from / 1000), floor(to / 1000)))
    call('LTRIM', history, -32, -1)
    call('EXPIRE', history, C.record_ttl(now_s) + max(0, ceil((to - now) / SECOND)))
  end

  -- How often a send was moved for this reason.
  function C.times_moved(key, why)
    local times = 0
    for _, line in ipairs(call('LRANGE', PREFIX .. 'h:' .. string.sub(key, #PREFIX + 3), 0, -1)) do
      if string.byte(line) == why then times = times + 1 end
    end
    return times
  end

  -- Takes a claim back whose call, meant for the instant `called`, was not made: the send stands at its slot again, held by the
  -- copy with this tag, and nothing was counted.
  function C.unclaim(r, tag, called, recipient)
    local at = r.epoch == H.epoch and C.instant(r.second, r.position) or called
    if recipient or H.has_quotas then C.count_call(at, called, r.cost, -1) end
    if recipient and H.spacing > 0 then C.unclaim_recipient(recipient, r.second, r.position, at); r.tail = recipient end
    -- Its charge stays: the worker's word for when the call was not made is too coarse to hand that time out again.
    H.dirty = true
    r.state, r.nonce, r.issuer, r.time, r.attempts = BOOKED, r.issuer, tag, 0, max(0, r.attempts - 1)
  end

  -- Why a send expires that found no place before its deadline: it was displaced, met a cooldown, was late; else 3.
  local expired_because = { [25] = 10, [21] = 11, [31] = 11, [22] = 12 }

  -- A place for a send that would come too late in the first free one: of sends that can wait, before `before` (us).
  local function make_room(r, start, before, recipient, again, reach)
    local front = r.cost > H.u0 and r.cost - H.u0 or 0
    local s, p = C.take_over(r.lane, r.cost + front, start, before, again, reach)
    if not s then return nil end
    local at = C.instant(s, p + front)
    if at > before or (recipient or H.has_quotas) and C.blocked(at, r.cost, recipient) then return nil end
    C.began = nil
    return s, p + front, at, 7, front > 0 and { { s, p, r.cost + front } } or nil, true
  end

  -- Moves r to the first free place from `start` on. What would miss its deadline there takes the place of a send that can wait, and
  -- a displaced one waits about as long again, not to the end of a long backlog. Returns nil and the wait (us), or {end state, reason}
  -- when there is none in time: the deadline, the cost, or 14 days.
  function C.book_again(key, r, why, start, rule, deadline, recipient, again)
    if r.cost > H.max_cost then return { FAILED, 7 } end
  -- only a send that no scheduler has booked: its not_before is anything
  if start > now + (FAR + 1) * SECOND then return { FAILED, 8 } end
    local was = r.epoch == H.epoch and C.instant(r.second, r.position) or 0
    local s, p, at, bound, place, under = C.look_up(r.lane, r.cost, start, rule, FAR, recipient, again)
    if s and why == 25 then
      local waited = max(2, floor(C.origin(r) / 2048)) * SECOND
      if at - now > 2 * waited then
        local found = { make_room(r, max(start, now + waited), at, recipient, true) }
        if found[1] then s, p, at, bound, place, under = unpack(found, 1, 6) end
      end
    end
    if deadline > 0 and (not s or at > deadline) then
      s, p, at, bound, place, under = make_room(r, start, deadline, recipient, false, RESCUE_REACH)
      if not s then
        C.remember(key, why, 0, was, 0, r)
        return { EXPIRED, expired_because[why] or 3 }
      end
    end
    if not s then return { FAILED, 8 } end
    C.remember(key, why, bound, was, at, r)
    -- sends that are booked again do not take each other's places, and none is displaced for ever, least of all a large one
    local kept = why == 25 and C.times_moved(key, 25) >= (r.cost > 1 and 2 or MOVES_MOST) or again and s - C.second_of(start) <= TAKE_OVER_REACH
    local state_flags = C.commit(r.lane, r.cost, s, p, at, place, under, recipient, kept, deadline)
    r.state, r.run, r.own, r.under = BOOKED, state_flags % OWN >= RUN, state_flags % UNDER >= OWN, state_flags >= UNDER
    r.second, r.position, r.epoch, r.time, r.nonce, r.tail = s, p, H.epoch, 0, C.origin_of(s, bound), C.tail_of(place, recipient)
    return nil, max(0, at - now)
  end

  -- What a copy says besides its fixed fields: recipient (8 bytes, zero: none), flags, lane.
  function C.details(extended, packed, fixed)
    if extended == 0 then return nil, 0, 0 end
    local recipient, lane = string.sub(packed, fixed + 1, fixed + 8), lane_id[string.sub(packed, fixed + 10)]
    if recipient == '\0\0\0\0\0\0\0\0' or H.spacing == 0 and H.rcool <= now then recipient = nil end
    return recipient, lane, string.byte(packed, fixed + 9)
  end
end
