-- search.lua: the earliest place, without writing. A look answers the position, or nil and the second to go on from.
local function load_search()
  if C.find then return end
  load_seconds()
  load_hints()
  C.lane_bound = false      -- a look failed only for what other lanes hold
  local function fit_hole(s, lane, units, elapsed, high, room)
    local p = max(high, elapsed)
    local free, best = max(0, room - p), nil
    for _, hole in ipairs(C.holes_of(s)) do
      local from, to = max(hole[1], elapsed), hole[1] + hole[2]
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
    if high >= HOLES then return fit_hole(s, lane, units, elapsed, high - HOLES, room) end
    if elapsed > high then high = elapsed end
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
      if j == s then p = max(p, elapsed) elseif C.get(C.high_water, j) > 0 then return nil, j end
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
    local q, _, place = run(s, lane, units, s == floor(start / SECOND) and C.position(s, start) or 0, last_s)
    return q == p and C.solid(place), place
  end

  -- The earliest place for `units` of a lane at or after `start` (us), in a second up to `last_s`: second, position, and
  -- the list of {second, position, units} of a run; or nil and the second that was reached.
  -- What a call walked is full in the hints of the next one; beyond WALK_LIMIT a send stands behind all others.
  local walked = 0
  local cursors = {}        -- where the last look from a second ended: one look may start from many, one behind each full quota
  function C.find(lane, units, start, last_s, heavy)
    local first = max(floor(start / SECOND), H.base)
    local elapsed = C.position(first, start)
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
      local p, go_on, place = search(s, lane, units, e, last_s)
      if p then
        ended[first] = s
        if looks > 64 then C.write_hints() end       -- the next send of this call may begin elsewhere in what was walked
        return s, p, place
      end
      if not go_on then return nil, last_s + 1 end          -- a run that ends too far
      -- not the partly elapsed second: an earlier start may still use it
      local from = e > 0 and s + 1 or s
      if from < go_on then C.mark_full(view, units, from, go_on - 1) end
      looks, walked, s = looks + 1, walked + 1, go_on
      if not skipped and walked >= WALK_LIMIT and looks >= 64 then
        local behind = max(s, C.last_booked() + 1)
        if behind <= last_s or walked >= 4 * WALK_LIMIT then s, skipped = behind, true end   -- rather walk on than refuse
      elseif looks == 8 * WALK_LIMIT then return nil, last_s + 1
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

  -- A send of an urgent lane, or (`again`) one that is booked again, takes the first position from `start` on that stands
  -- under a send of a lane that does not preempt: that one moves at its claim. Other lanes keep what is reserved for them,
  -- and sends booked again get a tenth of each second. Before `before` (us), and not far. The last claimed unit lies a gap
  -- before tat, also when the clock was set back.
  function C.take_over(lane, units, start, before, again)
    local first = floor(start / SECOND)
    for s = max(first, H.firm), first + TAKE_OVER_REACH do
      if s * SECOND >= before then return nil end
      local room, high, m = C.grid(s), C.get(C.high_water, s), C.marks(s)
      local own, held = C.holding(s)
      local tenth = room >= 10 and floor(room / 10) or (room > 0 and s % ceil(10 / room) == 0 and 1 or 0)
      if m[1] + m[2] + units <= room - held + (own[lane] or 0) and (not again or m[2] + units <= tenth) then
        local q = C.position(s, max(start, now + 1, H.base * SECOND + H.tat - H.gap + 1))
        local holes = high >= HOLES and C.holes_of(s) or {}
        local last = min(high % HOLES, room) - units
        while q <= last do
          local bad = C.marked(m, q, units)
          for _, hole in ipairs(holes) do
            if hole[1] < q + units and q < hole[1] + hole[2] then bad = max(bad or 0, hole[1] + hole[2] - 1) end
          end
          if not bad then
            if C.instant(s, q) >= before then return nil end
            return s, q
          end
          q = bad + 1
        end
      end
    end
  end

  -- Takes n positions of second s: above the high water, or out of a hole.
  function C.take(lane, s, p, n)
    local v = C.get(C.high_water, s)
    local high = v % HOLES
    if p >= high then C.set(C.high_water, s, v - high + p + n) end
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
