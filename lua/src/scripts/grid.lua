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
      -- the ramp is told by the clock
      local i, behind = #C.segments, floor(H.lag / SECOND)
      while i > 1 and C.segments[i][1] - behind > s do i = i - 1 end
      seg_from = i == 1 and 0 or C.segments[i][1] - behind
      seg_to = C.segments[i + 1] and C.segments[i + 1][1] - behind or math.huge
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

  -- The first second from s on that has bookings, as far as it is looked for: 36 hours.
  local AT_ONCE, LOOKS = 4096, 32
  local function next_booked(s)
    for _ = 1, LOOKS do
      local at = HEADER_BYTES + max(0, s - H.base) * 4
      local chunk = call('GETRANGE', CAL, at, at + AT_ONCE * 4 - 1)
      local found = string.find(chunk, '[^%z]')
      if found then return max(s, H.base) + floor((found - 1) / 4) end
      if #chunk < AT_ONCE * 4 then return math.huge end
      s = max(s, H.base) + AT_ONCE
    end
    return s
  end

  -- Free time behind position p of second s, until the next booking (us), which begins in the second that is told as well.
  local function gap_behind(s, p)
    local n, d = C.rate_at(s)
    local high, _, rest = C.get(C.high_water, s) % HOLES, C.grid(s)
    if high > p then return 0, s end
    local booked = next_booked(s + 1)
    return max(0, (booked - s) * SECOND - (rest + max(p, high) * d) * SECOND / n), booked
  end

  -- A gap makes the lag good, but for the time that copies are awake before their slots: they are told already.
  local function made_good(gap) return max(0, gap - H.lead - SECOND) end

  -- What is left of the lag at second s, as far as it can be told.
  local LAG_WALK = 3000
  local ahead, ahead_s, ahead_lag, ahead_gap_from
  function C.lag_at(s)
    if H.lag == 0 or s <= now_s then return H.lag end
    if not ahead then
      load_seconds()
      load_hints()
      ahead_s = max(now_s + 1, C.next_open(0, 1, now_s + 1, now_s + FAR))
      ahead, ahead_lag = { { ahead_s, H.lag } }, H.lag
    end
    for _ = 1, LAG_WALK do
      if ahead_s > s or ahead_lag == 0 then break end
      local gap, booked = gap_behind(ahead_s, 0)
      if booked == ahead_s then ahead_s = ahead_s + 1
      elseif booked > s then return max(0, floor(ahead_lag - made_good((s - ahead_s) * SECOND)))
      else
        ahead_lag = max(0, floor(ahead_lag - made_good(gap)))
        ahead_s = booked
        ahead[#ahead + 1] = { booked, ahead_lag }
      end
    end
    local i = #ahead
    while i > 1 and ahead[i][1] > s do i = i - 1 end
    return ahead[i][2]
  end

  -- Another lag holds from now on.
  function C.set_lag(lag)
    H.lag, H.dirty, ahead, seg_to = max(0, floor(lag)), true, nil, 0
    now_s = floor((max(now, H.rest) - H.lag) / SECOND)
  end

  -- The calendar stands still until then (us).
  function C.stand_still(till)
    local from = max(now, H.rest)
    if till <= from then return end
    H.rest = till
    C.set_lag(H.lag + till - from)
  end

  -- It goes on now, whatever was said before.
  function C.go_on()
    if H.rest <= now then return end
    local left = H.rest - now
    H.rest = now
    C.set_lag(H.lag - left)
  end

  -- The second in which the calendar will stand at an instant.
  function C.second_of(at)
    local s = floor(at / SECOND)
    if H.lag == 0 or C.lag_at(s) == 0 then return s end
    s = floor((at - H.lag) / SECOND)
    while (s + 1) * SECOND + C.lag_at(s + 1) <= at do s = s + 1 end
    return s
  end

  function C.instant(s, p)
    local n, d = C.rate_at(s)
    local _, rest = C.grid(s)
    return s * SECOND + C.lag_at(s) + ceil((rest + p * d) * SECOND / n)
  end

  -- first position of second s whose instant is not before `at`
  function C.position(s, at)
    local offset = at - s * SECOND - C.lag_at(s)
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
    H.gap, H.slack, H.burst, H.lifted, H.dirty = new_gap, new_slack, new_burst, now - H.base * SECOND, true
  end

  -- The ramp's segment that holds now; its rate was known to every booking since it was planned.
  function C.follow_ramp()
    local i = #C.segments
    while i > 1 and C.segments[i][1] > floor(now / SECOND) do i = i - 1 end
    if i ~= H.segment then
      local _, n, d, new_gap, new_slack, new_burst, floor_level, ceiling_level = unpack(C.segments[i])
      H.num, H.den = at_level(n, d, floor_level, ceiling_level)
      H.level = level_under(n, d, floor_level, ceiling_level)
      H.full_num, H.full_den, H.segment, H.floor_level, H.ceiling_level = n, d, i, floor_level, ceiling_level
      change_guard(new_gap, new_slack, new_burst)
    end
  end

  -- Whether the calendar is full from now on, for two seconds or for so long (us): what is late cannot be made good beside that.
  function C.full_for(time)
    load_seconds()
    load_hints()
    return (C.next_open(0, 1, now_s + 1, now_s + FAR) - now_s - 1) * SECOND >= min(time, 2 * SECOND)
  end

  -- A pause without an end makes the lag grow as time goes by. In a gap the calendar goes ahead to what is booked behind it.
  function C.follow_lag()
    if H.frozen > 0 then
      local till = min(now, H.paused)
      if till > H.frozen then
        C.set_lag(H.lag + till - H.frozen)
        H.rest, H.frozen = till, H.paused > now and till or 0
      end
    end
    now_s = floor((max(now, H.rest) - H.lag) / SECOND)
    if H.lag == 0 or H.frozen > 0 or H.rest > now then return end
    load_seconds()
    -- those that are a little late hold it as well
    local point, gap = now - H.lag - PATIENCE, -PATIENCE
    local s = floor(point / SECOND)
    local n, d = C.rate_at(s)
    local _, rest = C.grid(s)
    gap = gap + gap_behind(s, max(0, ceil(((point - s * SECOND) * n - rest * SECOND) / (d * SECOND))))
    if made_good(gap) > 0 then C.set_lag(H.lag - made_good(gap)) end
  end
end
make_grid()
