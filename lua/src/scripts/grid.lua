-- grid.lua: units stand at k/r; second s holds the k with s <= k/r < s+1.
local function make_grid()
  local function reduced(n, d)
    local a, b = n, d
    while b > 0 do a, b = b, a % b end
    return n / a, d / a
  end

  -- The adaptive level under a full rate: as many units as now, or its ceiling when the level is at the ceiling.
  local function level_under(n, d, floor_level, ceiling_level)
    if H.level >= H.ceiling_level then return ceiling_level end
    return min(ceiling_level, max(floor_level, floor(H.level * H.full_num * d / (H.full_den * n))))
  end

  local function at_level(n, d, floor_level, ceiling_level)
    local at = level_under(n, d, floor_level, ceiling_level)
    if at == LEVELS then return n, d end
    return reduced(n * at, d * LEVELS)
  end

  local seg_from, seg_to, seg_num, seg_den = 0, 0
  function C.rate_at(s)
    if s < H.switch then return H.num0, H.den0 end
    if not C.segments then return H.num, H.den end
    if s < seg_from or s >= seg_to then
      local i = #C.segments
      while i > 1 and C.segments[i][1] > s do i = i - 1 end
      seg_from, seg_to = i == 1 and 0 or C.segments[i][1], C.segments[i + 1] and C.segments[i + 1][1] or math.huge
      local segment = C.segments[i]
      seg_num, seg_den = at_level(segment[2], segment[3], segment[7], segment[8])
    end
    return seg_num, seg_den
  end

  -- the second from which another rate than at s holds
  function C.next_rate(s)
    if s < H.switch then return H.switch end
    if not C.segments then return math.huge end
    C.rate_at(s)
    return seg_to
  end

  -- capacity of second s, and how far its first unit lies behind its start, in units of 1/num seconds
  function C.grid(s)
    local n, d = C.rate_at(s)
    local x = s % d
    local before = ceil(x * n / d)
    return ceil((x + 1) * n / d) - before, before * d - x * n
  end

  function C.instant(s, p)
    local n, d = C.rate_at(s)
    local _, rest = C.grid(s)
    return s * SECOND + ceil((rest + p * d) * SECOND / n)
  end

  -- first position of second s whose instant is not before `at`
  function C.position(s, at)
    local offset = at - s * SECOND
    if offset <= 0 then return 0 end
    local n, d = C.rate_at(s)
    local _, rest = C.grid(s)
    return max(0, ceil((offset * n - rest * SECOND) / (d * SECOND)))
  end

  -- the next second behind s that has a unit at all (rates below 1/s)
  function C.next_with_unit(s)
    local n, d = C.rate_at(s)
    local x = s % d
    return max(s + 1, min(C.next_rate(s), s - x + floor(ceil(x * n / d) * d / n)))
  end

  -- The full rate is n/d from now on, where n0/d0 held until now. A lower one holds at once; a higher one from second
  -- now + lead + 2 on, since earlier it would turn waiting sends into missed ones. What was sent under a higher rate may
  -- lie in the future of a lower one: nothing is taken over in this second.
  function C.change_rate(n, d, n0, d0)
    H.full_num, H.full_den, seg_to = n, d, 0
    H.num, H.den = at_level(n, d, H.floor_level, H.ceiling_level)
    H.switch, H.num0, H.den0 = 0, H.num, H.den
    local n1, d1 = C.rate_at(now_s)
    if n1 * d0 > n0 * d1 then H.switch, H.num0, H.den0 = now_s + ceil((H.lead + SECOND) / SECOND) + 1, n0, d0
    elseif n1 * d0 < n0 * d1 then H.firm = now_s + 1 end
    H.dirty = true
  end

  -- The guard counts in units: what was used stays used.
  local function change_guard(new_gap, new_slack, new_burst)
    H.tat = now - H.base * SECOND + (H.tat - (now - H.base * SECOND)) / H.gap * new_gap
    H.gap, H.slack, H.burst, H.dirty = new_gap, new_slack, new_burst, true
  end

  -- The ramp's segment that holds now; its rate was known to every booking since it was planned.
  function C.follow_ramp()
    local i = #C.segments
    while i > 1 and C.segments[i][1] > now_s do i = i - 1 end
    if i ~= H.segment then
      local _, n, d, new_gap, new_slack, new_burst, floor_level, ceiling_level = unpack(C.segments[i])
      H.num, H.den = at_level(n, d, floor_level, ceiling_level)
      H.level = level_under(n, d, floor_level, ceiling_level)
      H.full_num, H.full_den, H.segment, H.floor_level, H.ceiling_level = n, d, i, floor_level, ceiling_level
      change_guard(new_gap, new_slack, new_burst)
    end
  end
end
make_grid()
