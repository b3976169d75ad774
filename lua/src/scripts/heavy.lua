-- heavy.lua: sends of a cost above u0. The guard's one number lets them pass only behind an idle stretch; here the law itself is
-- counted for them: what was called in a window, and what may be called in one that is yet to come.
local function load_heavy()
  if C.counted_delay then return end
  local MOST = 128

  -- the window of the law (us), and its units: the guard's gap and slack say both
  local window = H.jitter < 4294967295 and H.per * 1000 + H.jitter or nil
  -- a guard from before the jitter was part of the window says neither: then the guard alone decides
  if H.slack > H.gap and H.gap * H.full_num > 999999 * H.full_den then window = nil end
  local limit = window and floor((window + H.slack) / H.gap - 0.5)

  -- whole units that raise tat by so much
  local function units(us) return max(0, floor(us / H.gap + 0.001)) end

  -- Heavy calls, in the order in which they were charged: '<dddI4' instant, tat before it, units charged before it, cost.
  -- In front of them the guard they were charged to: gap, base, epoch. tat and instants count from the base.
  local CALLS, HEAD, CALL = PREFIX .. 'hv', '<dI4I4', '<dddI4'
  local packed, known
  local function load_calls()
    if packed then return end
    packed, known = call('GET', CALLS) or '', {}
    if #packed < 44 then return end
    local gap, base, epoch = sunpack(HEAD, packed)
    if gap ~= H.gap or epoch ~= H.epoch then return end
    local moved = (base - H.base) * SECOND
    for o = 17, #packed - 27, 28 do
      local at, tat, before, cost = sunpack(CALL, packed, o)
      known[#known + 1] = { at + moved, tat + moved, before, cost }
    end
    local last = known[#known]                        -- a clock set back pulled tat below what was charged
    if H.tat - max(last[1], last[2]) < (last[4] - 0.5) * H.gap then known = {} end
  end

  -- units charged since the last heavy call, without it
  local function since_last()
    local last = known[#known]
    return units(H.tat - max(last[1], last[2]) - last[4] * H.gap)
  end

  -- Units of all calls behind the instant `from`, at most. tat grows by each unit that is charged, and by idleness: between two
  -- heavy calls it bounds what was called there, and from an instant on it bounds what was called since.
  local function called_since(from)
    local n, k = #known, 1
    local all = units(H.tat - from)
    if n == 0 then return all end
    while k <= n and known[k][1] <= from do k = k + 1 end
    local first, before = known[k], known[k - 1]
    local charged = known[n][3] + known[n][4] + since_last()
    -- a call that was charged before `before` may have been meant for an instant behind `from`
    local late = before and before[2] - H.slack > from and units(before[2] - from) or 0
    local between = before and (first and first[3] or charged) - before[3] - before[4] + late or math.huge
    if not first then return min(all, between) end
    return min(all, charged - first[3] + min(units(first[2] - from), between))
  end

  -- How long until the window that ends with this call holds no more than the law allows (us), as far as the patience reaches.
  -- tat must stay where the bound for a clock that was set back leaves it alone.
  function C.counted_delay(cost)
    local at = now - H.base * SECOND
    if not window or max(H.tat, at) + cost * H.gap > at + H.burst then return math.huge end
    load_calls()
    local function holds(instant)
      local called = called_since(instant - window)
      return called == 0 or called + cost <= limit
    end
    if holds(at) then return 0 end
    for _, heavy in ipairs(known) do
      local leaves = heavy[1] + window
      if leaves > at + PATIENCE then break end
      if leaves > at and holds(leaves) then return leaves - at end
    end
    return math.huge
  end

  -- Notes a heavy call before it is charged.
  function C.note_call(at, cost)
    load_calls()
    at = at - H.base * SECOND
    local last, first = known[#known], max(1, #known + 2 - MOST)
    known[#known + 1] = { at, H.tat, last and last[3] + last[4] + since_last() or 0, cost }
    while first + 1 < #known and known[first + 1][1] <= now - H.base * SECOND - (window or 0) do first = first + 1 end
    local parts = { spack(HEAD, H.gap, H.base, H.epoch) }
    for i = first, #known do parts[#parts + 1] = spack(CALL, unpack(known[i])) end
    call('SET', CALLS, table.concat(parts), 'EX', ceil((window or 0) / SECOND) + 600)
  end

  -- Booked heavy sends by the second of their slot: '>I4I4I4I4I4d' slot, end of their places, cost, and how long before it nothing
  -- else stands in front of them (us).
  local BLOCKS, BLOCK = PREFIX .. 'hb', '>I4I4I4I4I4d'
  local blocks, seen_from, seen_to, newest = {}, 0, -1, nil
  local added, dropped = {}, {}
  local function block(member)
    local s, p, to_s, to_p, cost, ahead = sunpack(BLOCK, member)
    local own = C.instant(s, p)
    return { own = own, from = own - ahead, to = C.instant(to_s, to_p), cost = cost, s = s, p = p, member = member }
  end

  -- few of those that are read are looked at
  local function known_block(i)
    local b = blocks[i]
    if type(b) == 'string' then b = block(b); blocks[i] = b end
    return b
  end

  local function insert(b)
    local i = #blocks + 1
    while i > 1 and known_block(i - 1).own > b.own do i = i - 1 end
    table.insert(blocks, i, b)
  end

  local function last_block_s()
    if not newest then
      local last = call('ZREVRANGE', BLOCKS, 0, 0)
      newest = last[1] and sunpack('>I4', last[1]) or 0
      for _, b in ipairs(added) do newest = max(newest, b.s) end
    end
    return newest
  end

  -- the blocks of seconds from..to, or the last of them; what is not known counts as free
  local function load_blocks(from, to)
    if from >= seen_from and to <= seen_to then return end
    local members = call('ZREVRANGEBYSCORE', BLOCKS, to, from, 'LIMIT', 0, 2 * MOST)
    blocks = {}
    for i = #members, 1, -1 do
      if not dropped[members[i]] then blocks[#blocks + 1] = members[i] end
    end
    seen_from, seen_to = from, to >= last_block_s() and math.huge or to
    for _, b in ipairs(added) do
      if b.s >= from and b.s <= seen_to then insert(b) end
    end
  end

  function C.add_block(s, p, cost, place, from)
    local first, last = place and place[1] or { s, p, cost }, place and place[#place] or { s, p, cost }
    if not C.solid(place) then return end             -- not known: it counts as free
    local b = block(spack(BLOCK, s, p, last[1], last[2] + last[3], cost, C.instant(s, p) - (from or C.instant(first[1], first[2]))))
    added[#added + 1], newest = b, newest and max(newest, s)
    if s >= seen_from and s <= seen_to then insert(b) end
  end

  function C.drop_block(s, p)
    for _, member in ipairs(call('ZRANGEBYSCORE', BLOCKS, s, s)) do
      local at_s, at_p = sunpack('>I4I4', member)
      if at_s == s and at_p == p then dropped[member], newest = true, nil; call('ZREM', BLOCKS, member) end
    end
    for i = #added, 1, -1 do
      if added[i].s == s and added[i].p == p then table.remove(added, i) end
    end
    seen_to = -1
  end

  function C.write_blocks()
    for _, b in ipairs(added) do call('ZADD', BLOCKS, b.s, b.member) end
    if #added == 0 then return end
    call('EXPIRE', BLOCKS, C.life())
    -- what is over goes as more comes
    local over = call('ZRANGEBYSCORE', BLOCKS, '-inf', now_s - 3600 - floor(2 * (window or 0) / SECOND), 'LIMIT', 0, #added + 8)
    if #over > 0 then call('ZREM', BLOCKS, unpack(over)) end
    added, seen_to, newest = {}, -1, nil
  end

  -- Where the places in front of a block end: what is free before its start can no longer be booked when nothing ahead of the
  -- transit is in front of it, and then it begins where the last booking ends.
  local function begins(s, p, own)
    local from = C.instant(s, p)
    if C.instant(s, p - 1) >= now + H.transit or p < C.get(C.high_water, s) % HOLES then return from end
    local tat, last, j, to = H.base * SECOND + H.tat, C.last_booked(), s, p
    for _ = 1, 512 do
      local high = min(to, C.get(C.high_water, j) % HOLES)
      if high > 0 then return min(from, max(tat, C.instant(j, high))) end
      j = min(j - 1, last)
      if j < H.base or (j + 1) * SECOND + C.lag_at(j) <= own - window then return min(from, max(tat, own - window)) end
      to = C.grid(j)
    end
    return from
  end

  -- Units that the window before the instant `own` may hold in the end, for a block that begins at `from`: whatever is free now
  -- will be taken by sends of one unit, and counted as called_since counts it.
  local function may_hold(own, from)
    local edge, sum, next = own - window + 1.5, 0, from
    for i = #blocks, max(1, #blocks - MOST), -1 do
      local b = known_block(i)
      if b.own < own then
        local between = next > b.to + 1.5 and units(next - b.own) - b.cost or 0
        if b.own <= edge then return sum + min(max(0, between), units(next - edge)) end
        sum, next = sum + b.cost + max(0, between), min(next, b.from)
      end
    end
    return sum + units(next - edge)
  end

  -- The fewest places in front of a cost with which equal sends keep the law: as many of them as it allows in one window share
  -- its places. A hundredth more, where that is little, makes good what a late one takes from the next.
  local function least_front(cost, most)
    if not window or C.segments then return most end
    local apart = H.full_num / H.full_den * window / SECOND / max(1, floor(limit / cost))
    return min(most, max(0, ceil(apart * (apart >= 20 and 1.01 or 1) - 1e-9) - cost))
  end

  -- An earlier part of a quote placed equal sends from `began` up to `at`: one behind the other, as far as a window reaches.
  function C.stood_before(at, began, cost)
    local n, d = C.rate_at(C.second_of(at))
    local least, unit = least_front(cost, cost - H.u0), d * SECOND / n
    local own, sent_from = at - cost * unit, at - (window or 0) - H.max_cost * unit
    while own >= began and own > sent_from and #added < MOST do
      added[#added + 1] = { own = own, from = own - least * unit, to = own + cost * unit, cost = cost, s = C.second_of(own), p = 0 }
      own = own - (cost + least) * unit
    end
    newest, seen_to = nil, -1
  end

  -- The first place at or after `start` for a heavy send and as many positions in front of it as the law asks for there: second
  -- and position of the first of all these, the places when they are several, how many are in front, and from when nothing
  -- else is. With `most` in front it passes the guard anywhere.
  function C.find_heavy(lane, cost, most, start, last_s)
    local least = least_front(cost, most)
    local function look(from)
      local s, p, place = C.find(lane, cost + least, from, last_s, true)
      if not s then return nil, p end
      if not C.solid(place) then return nil end
      local n, d = C.rate_at(s)
      local at = C.instant(s, p)
      load_blocks(max(0, s - 1 - ceil(window / SECOND + H.max_cost * d / n)), s + 1 + ceil(most * d / n))
      C.work = C.work + 20
      local began = begins(s, p, at)
      local function holds(front)
        local held = may_hold(at + front * d * SECOND / n, began)
        return held == 0 or held + cost <= limit
      end
      local low, high = least, most
      if holds(least) then return s, p, place, least, began end
      while high - low > 1 do
        local middle = floor((low + high) / 2)
        if holds(middle) then high = middle else low = middle end
      end
      local fits, longer = C.run_at(lane, cost + high, s, p, from, last_s)
      if fits then return s, p, longer, high, began end
    end
    if least < most then
      local s, p, place, front, began = look(start)
      if s or C.unfinished then return s, p, place, front, began end
    end
    local s, p, place = C.find(lane, cost + most, start, last_s, true)
    if C.unfinished then return s, p end
    if least < most and last_block_s() > 0 then
      -- a small hole must not keep all that follows from standing close behind each other
      load_blocks(last_block_s(), last_block_s())
      local behind = #blocks > 0 and known_block(#blocks).to or 0
      if behind > start and C.second_of(behind) <= last_s then
        local s2, p2, place2, front2, began2 = look(behind)
        C.unfinished = nil
        if s2 then
          local n, d = C.rate_at(s2)
          if not s or C.instant(s2, p2) + front2 * d * SECOND / n < C.instant(s, p) + most * d * SECOND / n then
            return s2, p2, place2, front2, began2
          end
        end
      end
    end
    if not s then return nil, p end
    return s, p, place, most
  end
end
