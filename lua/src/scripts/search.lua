-- search.lua: the earliest place, without writing. A look answers the position, or nil and the second to go on from.
local function load_search()
  if C.find then return end
  load_seconds()
  load_hints()
  C.lane_bound = false      -- a look failed only for what other lanes hold
  -- About microseconds: a look, and a look at one position; how long a call may walk, and a look in take_over.
  local LOOK, POSITION, WALK, TAKE_OVER_WALK = 1.1 + 0.35 * #reserving, 0.4, 2500, 1200
  local reached_s, reached_p, reached_free = 0, 0, 0
  -- Where an earlier call stopped: it took what lies before, but for `skipped` units of that second. An instant is rounded up.
  function C.go_on_from(at, skipped, lane)
    reached_s, reached_free = C.second_of(at), skipped
    reached_p = C.position(reached_s, at - 1)
    local v = C.get(C.high_water, reached_s)
    local above = reached_p - v % HOLES
    if above > 0 then
      C.set(C.high_water, reached_s, v + above)
      if lane_preempts[lane] then C.set_marks(reached_s, reached_p - above, above, 1) end
    end
  end

  function C.skipped(at, start)
    local s = C.second_of(at)
    local p, elapsed, free = C.position(s, at - 1), C.position(s, start), s == reached_s and reached_free or 0
    for _, hole in ipairs(C.holes_of(s)) do
      free = free + max(0, min(hole[1] + hole[2], p) - max(hole[1], elapsed, s == reached_s and reached_p or 0))
    end
    return free
  end

  local function fit_hole(s, lane, units, elapsed, reached, high, room)
    local p, holes = max(high, reached), C.holes_of(s)
    local free, best = max(0, room - p) + (s == reached_s and reached_free or 0), nil
    C.work = C.work + POSITION * #holes
    for _, hole in ipairs(holes) do
      local from, to = max(hole[1], reached), hole[1] + hole[2]
      if to > from and to <= room then
        free = free + to - from
        if to - from >= units and not best then best = from end
      end
    end
    if free - C.held_back(lane, s, elapsed, room) < units then
      C.lane_bound = C.lane_bound or free >= units
      return nil, s + 1
    end
    if best then return best end
    if room - p >= units then return p end
    return nil, s + 1
  end

  local function fit(s, lane, units, elapsed)
    local high, room = C.get(C.high_water, s), C.grid(s)
    if room == 0 then return nil, C.next_with_unit(s) end
    local reached = s == reached_s and reached_p > elapsed and reached_p or elapsed
    if high >= HOLES then return fit_hole(s, lane, units, elapsed, reached, high - HOLES, room) end
    if reached > high then high = reached end
    if room - high < units then return nil, s + 1 end
    if #reserving == 0 or room - high - C.held_back(lane, s, elapsed, room) >= units then return high end
    C.lane_bound = true
    return nil, s + 1
  end

  -- units over several seconds: the tail of s, then untouched seconds; the rest of the last one stays bookable
  local function run(s, lane, units, elapsed, last_s)
    local place, j, need = {}, s, units
    while need > 0 do
      if j > last_s then return nil end
      local room, p = C.grid(j), C.get(C.high_water, j) % HOLES
      if room == 0 and j == s then return nil, C.next_with_unit(s) end
      C.work = C.work + LOOK
      if j == s then p = max(p, elapsed, j == reached_s and reached_p or 0) elseif C.get(C.high_water, j) > 0 then return nil, j end
      local free = room - p - C.held_back(lane, j, j == s and elapsed or 0, room)
      if free <= 0 and j == s then return nil, s + 1 end
      if free <= 0 and room > 0 then return nil, j end
      local part = min(free, need)
      if part > 0 then place[#place + 1] = { j, p, part }; need = need - part end
      j = room > 0 and j + 1 or C.next_with_unit(j)
    end
    return place[1][2], nil, #place > 1 and place or nil
  end

  -- whether nobody can stand between the places of a run
  function C.solid(place)
    for i = 2, place and #place or 1 do
      if place[i][2] > 0 or place[i - 1][2] + place[i - 1][3] < C.grid(place[i - 1][1]) then return false end
    end
    return true
  end

  -- a heavy send that a second does not hold goes on into an untouched one, when nobody can stand in between
  local function fit_or_run(s, lane, units, elapsed, last_s)
    local p = fit(s, lane, units, elapsed)
    if p then return p end
    local q, _, place = run(s, lane, units, elapsed, last_s)
    if q and C.solid(place) then return q, nil, place end
    return nil, s + 1
  end

  -- Whether so many units begin at this position, behind all that is booked in its second; and their places.
  function C.run_at(lane, units, s, p, start, last_s)
    local q, _, place = run(s, lane, units, s == C.second_of(start) and C.position(s, start) or 0, last_s)
    return q == p and C.solid(place), place
  end

  -- The earliest place for `units` of a lane at or after `start` (us), in a second up to `last_s`: second, position, and
  -- the list of {second, position, units} of a run; or nil and the second that was reached.
  -- What a call walked is full in the hints of the next one; beyond WALK a send stands behind all others. A caller that asks again
  -- for what a call did not come to (C.parts) hears that it is unfinished, and where it stopped: always (`exact`), or when there is
  -- nothing behind the others either.
  local walked = 0
  local cursors = {}        -- where the last look from a second ended: one look may start from many, one behind each full quota
  function C.find(lane, units, start, last_s, heavy)
    local begun = C.second_of(start)
    local first = max(begun, H.base, reached_s)
    local elapsed = first == begun and C.position(first, start) or 0
    local view = (lane_share[lane] or 0) > 0 and lane + 1 or 0
    local id = view * 16777216 + units
    local ended = cursors[id]
    if not ended then ended = {}; cursors[id] = ended end
    local s = ended[first] or C.next_open(view, units, first, last_s)
    local looks, skipped, n, d, search = 0, false, nil, nil, fit
    C.lane_bound = false
    while s <= last_s do
      local n1, d1 = C.rate_at(s)
      if n1 ~= n or d1 ~= d then
        n, d = n1, d1
        local own, held = C.holding(s)
        search = units > floor(n / d) - held + (own[lane] or 0) and run or heavy and fit_or_run or fit
      end
      local e = s == first and elapsed or 0
      local work = C.work
      local p, go_on, place = search(s, lane, units, e, last_s)
      C.work = C.work + LOOK
      if p then
        ended[first] = s
        if looks > 64 then C.write_hints() end       -- the next send of this call may begin elsewhere in what was walked
        return s, p, place
      end
      if not go_on then return nil, last_s + 1 end          -- a run that ends too far
      -- not the partly elapsed second: an earlier start may still use it
      local from = e > 0 and s + 1 or s
      if from < go_on then C.mark_full(view, units, from, go_on - 1) end
      looks, walked, s = looks + 1, walked + C.work - work, go_on
      if not skipped and walked >= WALK and (looks >= 8 or C.parts) then
        local behind = max(s, C.last_booked() + 1)
        if C.parts and (C.parts == 'exact' or behind > last_s) then C.unfinished = true; return nil, s end
        if behind <= last_s or walked >= 20 * WALK then s, skipped = max(s, behind - 1), true end   -- rather walk on than refuse
        C.work = C.work + WALK            -- the next send is for another call, which knows what was walked
      elseif walked >= 40 * WALK then return nil, last_s + 1
      elseif looks == 1 or looks % 64 == 0 then
        s = C.next_open(view, units, s, last_s)
        -- where not even one unit fits, nothing fits or begins
        if units > 1 and s <= last_s then
          local one = C.next_open(view, 1, s, last_s)
          if one > s then s = C.next_open(view, units, one, last_s) end
        end
      end
    end
    return nil, s
  end

  -- Whether sends of a second that have deadlines cannot be moved: the next free place is behind the earliest of these.
  local function cannot_move(s)
    local d = C.deadlines(s)
    if d[2] == '' then return false end
    local open = C.next_open(0, 1, s, s + FAR)
    -- hints do not know the second that has begun
    while C.get(C.high_water, open) % HOLES >= C.grid(open) and open < s + 4 do open = C.next_open(0, 1, open + 1, s + FAR) end
    return d[1] * SECOND < C.instant(open, C.get(C.high_water, open) % HOLES)
  end

  -- A send of an urgent lane, or (`again`) one that is booked again, takes the first position from `start` on that stands
  -- under a send of a lane that does not preempt: that one moves at its claim. Other lanes keep what is reserved for them,
  -- and sends booked again get a tenth of each second. Before `before` (us), and not far. Behind what was claimed, also
  -- when the clock was set back.
  -- What was passed is not looked at again in this call, unless something changed there (C.touch). TAKE_OVER_WALK is more than the 20 s
  -- of most budgets.
  local passed = {}
  function C.pass(lane, units, again, start, s, q)
    local known = { start = start, s = s, q = q }
    passed[(units * 64 + lane) * 2 + (again and 1 or 0)] = known
    return known
  end

  function C.touch(s)
    for _, known in pairs(passed) do
      if s <= known.s then known.s, known.q = s, 0 end
    end
  end

  -- where the last look for this stopped
  function C.passed(lane, units, again)
    local known = passed[(units * 64 + lane) * 2 + (again and 1 or 0)]
    return known and known.s or 0, known and known.q or 0
  end

  -- Nor are those moved whose deadline the next free place does not meet.
  function C.take_over(lane, units, start, before, again, reach)
    local first, enough = C.second_of(start), C.work + TAKE_OVER_WALK
    -- units that were claimed stand on the grid 1/r apart, and in tat 1/R
    local after_claimed = now + (H.base * SECOND + H.tat - now) / H.gap * H.den * SECOND / H.num - 2
    local to = first + (reach or TAKE_OVER_REACH)
    local known = passed[(units * 64 + lane) * 2 + (again and 1 or 0)]
    if not known or start < known.start then known = C.pass(lane, units, again, start, first, 0) end
    for s = max(first, H.firm, known.s), to do
      if s * SECOND + C.lag_at(s) >= before then return nil end
      if s > known.s then known.s, known.q = s, 0 end
      local room, high, m = C.grid(s), C.get(C.high_water, s), C.marks(s)
      local own, _, held = C.holding(s)
      local tenth = room >= 10 and floor(room / 10) or (room > 0 and s % ceil(10 / room) == 0 and 1 or 0)
      C.work = C.work + 4
      if m[1] + m[2] + units <= room - held + (own[lane] or 0) and (not again or m[2] + units <= tenth) then
        local q = max(known.q, C.position(s, max(start, now + 1, after_claimed)))
        local holes, h = high >= HOLES and C.holes_of(s) or {}, 1
        local last = min(high % HOLES, room) - units
        while q <= last do
          local bad = C.marked(m, q, units)
          if not bad and cannot_move(s) then bad = C.marked({ 0, 0, C.deadlines(s)[2] }, q, units) end
          while holes[h] and holes[h][1] + holes[h][2] <= q do h = h + 1 end
          local k = h
          while holes[k] and holes[k][1] < q + units do bad = max(bad or 0, holes[k][1] + holes[k][2] - 1); k = k + 1 end
          C.work = C.work + 2 * POSITION + POSITION * (k - h)
          if not bad then
            if C.instant(s, q) >= before then return nil end
            return s, q
          end
          q = C.unmarked(m, bad + 1)
          known.q = q
          if C.work >= enough then C.unfinished = C.parts == 'exact'; return nil end
        end
      end
    end
    known.s, known.q = max(known.s, to + 1), 0
  end

  -- Takes n positions of second s: above the high water, or out of a hole.
  function C.take(lane, s, p, n)
    local v = C.get(C.high_water, s)
    local high = v % HOLES
    if p >= high then C.set(C.high_water, s, v - high + p + n) end
    if p < high then C.work = C.work + POSITION * #C.holes_of(s) end
    for _, hole in ipairs(p < high and C.holes_of(s) or {}) do
      local rest = hole[1] + hole[2] - (p + n)
      if hole[1] <= p and rest >= 0 then
        C.drop_hole(s, hole)
        if p > hole[1] then C.add_hole(s, hole[1], p - hole[1]) end
        if rest > 0 then C.add_hole(s, p + n, rest) end
        if #C.holes_of(s) == 0 then C.set(C.high_water, s, high) end
        break
      end
    end
    C.use(lane, s, n)
  end
end
