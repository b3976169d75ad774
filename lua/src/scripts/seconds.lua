-- seconds.lua: what is kept per second: units booked, units of each lane with a reservation, holes, marked positions.
-- u32 per second from `base` on behind `skip` bytes of `key`, read 64 at a time, written once at the end. With pages: a string
-- for each PAGE seconds, <key>:<page>, which ends by itself.
function load_seconds()
  if C.get then return end
  function C.numbers(key, skip, base) return { key = key, skip = skip, base = base, chunks = {}, changed = {}, order = {} } end

  local function page_of(a, s) return a.key .. ':' .. floor(s / PAGE) end

  function C.get(a, s)
    local v = a.changed[s]
    if v then return v end
    local i = s - a.base
    if i < 0 then return 0 end
    local c = floor(i / 64)
    local chunk = a.chunks[c]
    if not chunk then
      local key, o = a.key, a.skip + c * 256
      if a.paged then key, o = page_of(a, s), i % PAGE * 4 - i % 64 * 4 end
      chunk = call('GETRANGE', key, o, o + 255)
      a.chunks[c], a.fresh = chunk, a.fresh or #chunk == 0
    end
    local o = (i - c * 64) * 4
    return #chunk >= o + 4 and sunpack('<I4', chunk, o + 1) or 0
  end

  function C.set(a, s, v)
    if s < a.base then return end
    if not a.changed[s] then a.order[#a.order + 1] = s end
    if a == C.high_water and C.touch then C.touch(s) end
    a.changed[s] = v
  end

  function C.write_numbers(a)
    local order, changed, i = a.order, a.changed, 1
    table.sort(order)
    while i <= #order do
      local j, words = i, {}
      while j <= #order and order[j] == order[i] + (j - i) and not (a.paged and j > i and order[j] % PAGE == 0) do words[#words + 1] = spack('<I4', changed[order[j]]); j = j + 1 end
      if a.paged then
        local s, key = order[i], page_of(a, order[i])
        call('SETRANGE', key, s % PAGE * 4, table.concat(words))
        if a.fresh then call('EXPIRE', key, C.record_ttl(s - s % PAGE + PAGE) - H.dedup + 3600) end
      else
        call('SETRANGE', a.key, a.skip + (order[i] - a.base) * 4, table.concat(words))
      end
      i = j
    end
  end

  C.high_water = C.numbers(CAL, HEADER_BYTES, H.base)
  function C.forget_seconds() C.high_water = C.numbers(CAL, HEADER_BYTES, H.base) end
  local lane_used = {}
  local function used(lane)
    local a = lane_used[lane]
    if not a then
      a = C.numbers(PREFIX .. 'lu:' .. lane .. ':' .. H.epoch, 0, 0)
      a.paged = true
      lane_used[lane] = a
    end
    return a
  end

  function C.used_by(lane, s) return C.get(used(lane), s) end

  function C.use(lane, s, units)
    if (lane_share[lane] or 0) > 0 then C.set(used(lane), s, max(0, C.get(used(lane), s) + units)) end
  end

  function C.last_booked()
    local l, last = call('STRLEN', CAL), H.base - 1
    if l > HEADER_BYTES then last = H.base + ceil((l - HEADER_BYTES) / 4) - 1 end
    for _, s in ipairs(C.high_water.order) do last = max(last, s) end
    return last
  end

  -- Whole units of each second that a lane holds at the rate of second s, by lane; the sum of those that are kept free for their
  -- lane, and of all. A lane that preempts needs none kept free: it takes them over, and until then nobody goes without.
  local held_num, held_den, held_units, kept_sum, held_sum
  function C.holding(s)
    local n, d = C.rate_at(s)
    if n ~= held_num or d ~= held_den then
      held_num, held_den, held_units, kept_sum, held_sum = n, d, {}, 0, 0
      for _, lane in ipairs(reserving) do
        held_units[lane] = floor(lane_share[lane] * floor(n / d) / 10000)
        held_sum = held_sum + held_units[lane]
        if not lane_preempts[lane] then kept_sum = kept_sum + held_units[lane] end
      end
    end
    return held_units, kept_sum, held_sum
  end

  -- units of second s that other lanes still have a claim on; of a partly elapsed one only their share of what is left
  function C.held_back(lane, s, elapsed, room)
    if #reserving == 0 then return 0 end
    local units, held = C.holding(s), 0
    for _, other in ipairs(reserving) do
      if other ~= lane and not lane_preempts[other] then
        local left = min(units[other], room) - C.get(used(other), s)
        if elapsed > 0 then left = min(left, ceil(units[other] * (room - elapsed) / room)) end
        if left > 0 then held = held + left end
      end
    end
    return held
  end

  -- holes: places that came back, of each second in the order of their positions: {position, units}
  local holes_seen, holes_changed = {}, {}        -- what changed: of each second, by member, whether it is there now
  function C.holes_of(s)
    local list = holes_seen[s]
    if not list then
      list = {}
      for _, member in ipairs(call('ZRANGEBYSCORE', PREFIX .. 'holes', s, s)) do
        local _, p, n = sunpack('>I4I4I4', member)
        list[#list + 1] = { p, n }
      end
      holes_seen[s], C.work = list, C.work + #list
    end
    return list
  end

  local function change_hole(s, p, n, there)
    if not holes_changed[s] then holes_changed[s] = {} end
    holes_changed[s][spack('>I4I4I4', s, p, n)] = there
  end

  function C.add_hole(s, p, n)
    local list, i = C.holes_of(s), 1
    while list[i] and list[i][1] < p do i = i + 1 end
    table.insert(list, i, { p, n })
    change_hole(s, p, n, true)
  end

  function C.drop_hole(s, hole)
    local list = C.holes_of(s)
    for i = #list, 1, -1 do
      if list[i] == hole then table.remove(list, i) end
    end
    change_hole(s, hole[1], hole[2], false)
    if C.touch then C.touch(s) end
  end

  -- marks: per second the units of preempting lanes, the units of sends that were booked again in the place of others,
  -- and a bit for each position that nobody takes over
  local marks_seen, marks_changed = {}, {}
  function C.marks(s)
    local m = marks_seen[s]
    if not m then
      local packed = call('HGET', PREFIX .. 'pre', s)
      m = { 0, 0, '' }
      if packed then m = { sunpack('<I4I4', packed) }; m[3] = string.sub(packed, 9) end
      marks_seen[s] = m
    end
    return m
  end

  -- the last marked position of [p, p + n)
  function C.marked(m, p, n)
    local bits = m[3]
    local q = min(p + n, #bits * 8) - 1
    while q >= p do
      local byte = string.byte(bits, floor(q / 8) + 1)
      if byte == 0 then q = floor(q / 8) * 8 - 1
      elseif floor(byte / 2 ^ (q % 8)) % 2 == 1 then return q
      else q = q - 1 end
    end
  end

  -- the first position from p on that is not marked
  function C.unmarked(m, p)
    local bits = m[3]
    while p < #bits * 8 do
      local i = floor(p / 8)
      local byte = string.byte(bits, i + 1)
      if byte == 255 then p = ((string.find(bits, '[^\255]', i + 1)) or #bits + 1) * 8 - 8
      elseif floor(byte / 2 ^ (p % 8)) % 2 == 1 then p = p + 1
      else return p end
    end
    return p
  end

  -- byte i (from 0) of these bits, with those of [p, to) on or off
  local function with_marks(bits, i, p, to, on)
    local byte = string.byte(bits, i + 1)
    for q = max(p, i * 8), min(to, i * 8 + 8) - 1 do
      local bit = 2 ^ (q % 8)
      if floor(byte / bit) % 2 ~= on then byte = byte + (on == 1 and bit or -bit) end
    end
    return string.char(byte)
  end

  local function with_range(given, p, n, on)
    local to = p + n
    local first, last = floor(p / 8), floor((to - 1) / 8)
    local bits = given .. string.rep('\0', last + 1 - #given)
    local middle = with_marks(bits, first, p, to, on)
    if last > first then
      middle = middle .. string.rep(on == 1 and '\255' or '\0', last - first - 1) .. with_marks(bits, last, p, to, on)
    end
    return string.sub(bits, 1, first) .. middle .. string.sub(bits, last + 2)
  end

  -- deadlines: per second the earliest one of its sends (s), and a bit for each position of a send that has one
  local deadlines_seen, deadlines_changed = {}, {}
  local function deadlines_key(s) return PREFIX .. 'dl:' .. string.format('%.0f', floor(s / 3600)) end
  function C.deadlines(s)
    local d = deadlines_seen[s]
    if not d then
      local packed = call('HGET', deadlines_key(s), s)
      d = packed and { sunpack('<I4', packed), string.sub(packed, 5) } or { 4294967295, '' }
      deadlines_seen[s] = d
    end
    return d
  end

  function C.note_deadline(s, p, n, deadline)
    local d = C.deadlines(s)
    d[1], d[2] = min(d[1], floor(deadline / SECOND)), with_range(d[2], p, n, 1)
    deadlines_changed[s] = true
  end

  function C.set_marks(s, p, n, on)
    local m = C.marks(s)
    m[3], marks_changed[s] = with_range(m[3], p, n, on), true
    if on == 0 and C.touch then C.touch(s) end
    if on == 1 and s > H.pre_until then H.pre_until, H.dirty = s, true end
  end

  -- counts units of second s: kind 1 of a preempting lane, 2 of a send booked again
  function C.count_marks(s, kind, units)
    local m = C.marks(s)
    m[kind], marks_changed[s] = max(0, m[kind] + units), true
    if units < 0 and C.touch then C.touch(s) end
  end

  function C.write_seconds()
    for s in pairs(deadlines_changed) do
      local d, key = deadlines_seen[s], deadlines_key(s)
      call('HSET', key, s, spack('<I4', d[1]) .. d[2])
      call('EXPIRE', key, C.record_ttl(s), 'GT')
      call('EXPIRE', key, C.record_ttl(s), 'NX')
    end
    C.write_numbers(C.high_water)
    for _, a in pairs(lane_used) do
      C.write_numbers(a)
    end
    local changed = false
    for s, members in pairs(holes_changed) do
      for member, there in pairs(members) do
        if there then call('ZADD', PREFIX .. 'holes', s, member) else call('ZREM', PREFIX .. 'holes', member) end
        changed = true
      end
    end
    -- what is over goes as more comes
    if changed then
      call('EXPIRE', PREFIX .. 'holes', C.life())
      local over = call('ZRANGEBYSCORE', PREFIX .. 'holes', '-inf', now_s - 3600, 'LIMIT', 0, 32)
      if #over > 0 then call('ZREM', PREFIX .. 'holes', unpack(over)) end
    end
    changed = false
    for s in pairs(marks_changed) do
      local m = marks_seen[s]
      call('HSET', PREFIX .. 'pre', s, spack('<I4I4', m[1], m[2]) .. m[3])
      changed = true
    end
    if changed then
      call('EXPIRE', PREFIX .. 'pre', C.life())
      for _, s in ipairs(call('HRANDFIELD', PREFIX .. 'pre', 4)) do
        if tonumber(s) < now_s - 3600 then call('HDEL', PREFIX .. 'pre', s) end
      end
    end
  end
end
