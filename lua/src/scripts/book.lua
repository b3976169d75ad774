-- book.lua: a booking: looked up without a trace, then taken at once; and given back.
-- Which rule bound a booking: 0 none (transit), 1 the rate, 2 not_before, 3 cooldown, 4 quota, 5 spacing, 6 what other
-- lanes hold, 7 none: it takes the place of another send.
--
-- Looks up a slot from `start` on, which `rule` asks for. Returns second, position, instant, rule, place, under: place
-- is the list of {second, position, units} when it is not simply `cost` units at that position, under: in the place of
-- another send. Or nil and the instant it would be at. A send above u0 leaves behind positions of its own: see
-- find_heavy.
local function load_book()
  if C.look_up then return end
  load_search()
  function C.look_up(lane, cost, start, rule, reach_s, recipient, again)
    local most = cost > H.u0 and cost - H.u0 or 0
    local last_s, from = C.second_of(start) + reach_s, start
    if most > 0 then load_heavy() end
    C.work, C.looked_from, C.looked_rule = C.work + 4, start, rule
    C.personal = false          -- whether its recipient moved it
    for _ = 1, 100 do
      local s, p, place, front, began
      if most > 0 then s, p, place, front, began = C.find_heavy(lane, cost, most, from, last_s)
      else s, p, place = C.find(lane, cost, from, last_s) end
      if not s then return nil, p * SECOND + C.lag_at(p) end
      local first_s = C.second_of(from)
      if rule < 4 and (s > first_s or p > C.position(first_s, from)) then rule = C.lane_bound and 6 or 1 end
      C.began = began           -- from when on nothing else stands in front of it
      if front and front > 0 then
        place = place or { { s, p, cost + front } }
        local left = front
        for _, t in ipairs(place) do
          if left < t[3] then s, p = t[1], t[2] + left; break end
          left = left - t[3]
        end
      end
      local at = C.instant(s, p)
      local next, why
      if recipient or H.has_quotas then next, why = C.blocked(at, cost, recipient) end
      if C.unfinished then return nil, next or at end
      if not next then
        if (again or lane_preempts[lane]) and at - from > TAKE_OVER_AFTER then
          local s2, p2 = C.take_over(lane, cost + most, from, at, not lane_preempts[lane])
          local ruled = recipient or H.has_quotas
          if s2 and not (ruled and C.blocked(C.instant(s2, p2 + most), cost, recipient)) then
            place, C.began = most > 0 and { { s2, p2, cost + most } } or nil, nil
            return s2, p2 + most, C.instant(s2, p2 + most), 7, place, true
          end
        end
        return s, p, at, rule, place, false
      end
      from, rule, C.personal = next, why, C.personal or why == 5
      C.looked_from, C.looked_rule = from, rule
      if C.second_of(from) > last_s then return nil, from end
    end
    return nil, from
  end

  -- Whether a lane books within what it holds of a second: nobody preempts that.
  local function guaranteed(lane, s, units)
    if not C.preempting or (lane_share[lane] or 0) == 0 then return false end
    return C.used_by(lane, s) + units <= C.holding(s)[lane]
  end

  -- Charges a booking to quotas and spacing.
  function C.charge(cost, s, p, recipient)
    local at = C.instant(s, p)
    for _, q in ipairs(C.quotas) do C.charge_window(q, C.window(q, at), cost, 0) end
    if recipient and H.spacing > 0 then C.charge_recipient(recipient, s, p, at) end
  end

  -- Takes what look_up found: positions, quotas, spacing. kept: nobody takes these positions over. Returns the flags of the
  -- record's state.
  function C.commit(lane, cost, s, p, at, place, under, recipient, kept, deadline)
    local urgent = lane_preempts[lane] or false
    local own = under or urgent or kept or not place and guaranteed(lane, s, cost) or false
    for i = 1, place and #place or 1 do
      local ts, tp, tn = s, p, cost
      if place then ts, tp, tn = unpack(place[i]) end
      if under then C.use(lane, ts, tn) else C.take(lane, ts, tp, tn) end
      if deadline > 0 then C.note_deadline(ts, tp, tn, deadline) end
      if own then
        C.set_marks(ts, tp, tn, 1)
        if urgent or under then C.count_marks(ts, urgent and 1 or 2, tn) end
      end
    end
    if cost > H.u0 then C.add_block(s, p, cost, place, not under and C.began or nil) end
    C.outlive(place and place[#place][1] or s)
    C.charge(cost, s, p, recipient)
    return (place and #place > 1 and RUN or 0) + (own and OWN or 0) + (under and UNDER or 0)
  end

  -- What stands behind a record: its places when they are not simply cost units at its position, and the recipient.
  function C.tail_of(place, recipient)
    local parts = {}
    for _, t in ipairs(place or {}) do parts[#parts + 1] = spack('<I4I3I3', t[1], t[2], t[3]) end
    if recipient and H.spacing > 0 then parts[#parts + 1] = recipient end
    return table.concat(parts)
  end

  -- Whether an unclaimed send lost a position of its own to another one.
  function C.displaced(places)
    for _, t in ipairs(places) do
      if t[1] <= H.pre_until and C.marked(C.marks(t[1]), t[2], t[3]) then return true end
    end
    return false
  end

  -- Gives n positions of second s back, but for what has passed.
  local opened_from, opened_to
  local function release(lane, s, p, n)
    if s < now_s then return end
    local passed = s == now_s and C.position(s, now + 1) - p or 0
    if passed > 0 then p, n = p + passed, n - passed end
    local v = C.get(C.high_water, s)
    local high, to = v % HOLES, p + n
    if n <= 0 or to > high then return end
    C.use(lane, s, -n)
    local from, around = p, {}
    for _, hole in ipairs(v >= HOLES and C.holes_of(s) or {}) do
      if hole[1] + hole[2] == p or hole[1] == to then around[#around + 1] = hole end
    end
    for _, hole in ipairs(around) do
      from, to = min(from, hole[1]), max(to, hole[1] + hole[2])
      C.drop_hole(s, hole)
    end
    if to == high then
      C.set(C.high_water, s, from + (v >= HOLES and #C.holes_of(s) > 0 and HOLES or 0))
    else
      C.add_hole(s, from, to - from)
      C.set(C.high_water, s, high + HOLES)
    end
    opened_from, opened_to = min(opened_from or s, s), max(opened_to or s, s)
  end

  -- Of n positions of a displaced send those that nobody took.
  local function release_rest(lane, s, p, n)
    local m, to = C.marks(s), p + n
    while to > p do
      local taken = C.marked(m, p, to - p)
      local from = taken and taken + 1 or p
      if from < to then release(lane, s, from, to - from) end
      to = taken or p
    end
  end

  -- Returns all that a booking of this calendar holds and that lies ahead: positions, quotas, spacing. called: when the call was
  -- made that submitted nothing.
  function C.give_back(r, places, recipient, called)
    local at = called or C.instant(r.second, r.position)
    for _, q in ipairs(C.quotas) do C.charge_window(q, C.window(q, at), -r.cost, called and -r.cost or 0) end
    if recipient and H.spacing > 0 then C.refund_recipient(recipient, r.second, r.position) end
    if not places then return end
    if r.cost > 1 then load_heavy(); C.drop_block(r.second, r.position) end
    opened_from, opened_to = nil, nil
    local lost = not r.own and C.displaced(places)
    for _, t in ipairs(places) do
      if r.own then
        C.set_marks(t[1], t[2], t[3], 0)
        if lane_preempts[r.lane] or r.under then C.count_marks(t[1], lane_preempts[r.lane] and 1 or 2, -t[3]) end
      end
      if r.under then C.use(r.lane, t[1], -t[3])
      elseif lost then release_rest(r.lane, t[1], t[2], t[3])
      else release(r.lane, t[1], t[2], t[3]) end
    end
    if opened_from then C.reopen(opened_from, opened_to) end
  end
end
