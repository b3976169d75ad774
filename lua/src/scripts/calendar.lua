-- calendar.lua: the general path: header, grid, search, booking. Joined behind a script's straight-line part.
local PREFIX = string.sub(CAL, 1, -4)
-- 128 bytes: what claim needs, in 64; what reserve needs; the rate before `switch`; the cooldown's start; the bound of tat;
-- the window (ms); the cursor of reserve.lua (cost, first second it holds for, second)
local HEADER = '<I4I4I4I4I4I4ddddI4BBBBI4I4I4I4I4I4I4I4ddI4I4I4I4'
local SECOND, KEEP_PAST, REBASE_AGE, WALK_LIMIT, FAR = 1000000, 3600, 10800, 20000, 1209600
local HINTS_MAX, HINT_TTL = 32, 1300000
local base, epoch, num, den, switch, grace, cool, tat, gap, slack, lead, flags, max_attempts, lanes, spare
local transit, u0, max_cost, horizon, dedup, expiry, num0, den0, cool_set, burst, per, cursor_unit, cursor_first, cursor_s
local now_s = floor(now / SECOND)
local header_dirty = false

local function unpack_header(h)
  base, epoch, num, den, switch, grace, cool, tat, gap, slack, lead, flags, max_attempts, lanes, spare,
    transit, u0, max_cost, horizon, dedup, expiry, num0, den0, cool_set, burst, per, cursor_unit, cursor_first, cursor_s = sunpack(HEADER, h)
end

local function pack_header()
  return spack(HEADER, base, epoch, num, den, switch, grace, cool, tat, gap, slack, lead, flags, max_attempts, lanes, spare,
    transit, u0, max_cost, horizon, dedup, expiry, num0, den0, cool_set, burst, per, cursor_unit, cursor_first, cursor_s)
end

-- A calendar that was never there, or was lost with data that nobody knows: a new epoch voids every booking of the old
-- one. After a loss nothing may start before now + per, since what was just sent is unknown.
local function new_calendar(compiled, lost)
  unpack_header(compiled)
  base, epoch = floor(now_s / 3600) * 3600 - KEEP_PAST, floor(now / 1000) % 4294967295 + 1
  cool, tat, cool_set, expiry, switch, num0, den0 = 0, -1e13, 0, now_s + 7200, 0, num, den
  if lost then cool, cool_set = now + per * 1000, now end
  call('DEL', CAL)
  for _, hint in ipairs(call('SMEMBERS', PREFIX .. 'hints')) do call('DEL', hint) end
  call('DEL', PREFIX .. 'hints')
  call('SETRANGE', CAL, 0, pack_header())
  call('EXPIRE', CAL, expiry - now_s)
  call('HSET', POLICY, 'idle_after', expiry)
end

-- Cuts off what lies more than an hour back, in whole hours, so that calendar and hints keep their alignment.
local function rebase()
  local new_base = floor(now_s / 3600) * 3600 - KEEP_PAST
  local gone = new_base - base
  local kept = call('GETRANGE', CAL, HEADER_BYTES + gone * 4, -1)
  base, tat, cursor_unit = new_base, tat - gone * SECOND, 0
  -- header and body at once: a caller that only looks may return without finish()
  call('SET', CAL, pack_header() .. kept, 'KEEPTTL')
  for _, hint in ipairs(call('SMEMBERS', PREFIX .. 'hints')) do
    local bits = call('GETRANGE', hint, gone / 8, -1)
    if #bits > 0 then call('SET', hint, bits, 'EX', HINT_TTL) else call('DEL', hint); call('SREM', PREFIX .. 'hints', hint) end
  end
end

-- false: the budget has no policy.
local function load_header()
  local h = call('GETRANGE', CAL, 0, HEADER_BYTES - 1)
  if #h < HEADER_BYTES then
    local policy = call('HMGET', POLICY, 'compiled', 'idle_after')
    if not policy[1] then return false end
    new_calendar(policy[1], not policy[2] or now_s < tonumber(policy[2]))
    return true
  end
  unpack_header(h)
  if now_s - base > REBASE_AGE then rebase() end
  if cool_set > now then                          -- the clock was set back: the cooldown lasts as long as it was meant to
    cool, cool_set, header_dirty = now + (cool - cool_set), now, true
  end
  local ahead = now - base * SECOND + burst       -- further ahead tat never runs, unless the clock was set back
  if tat > ahead then tat, header_dirty = ahead, true end
  return true
end

-- grid: units stand at k/r; second s holds the k with s <= k/r < s+1
local function rate_at(s)
  if s < switch then return num0, den0 end
  return num, den
end

-- capacity of second s, and how far its first unit lies behind its start, in units of 1/num seconds
local function grid(s)
  local n, d = rate_at(s)
  local x = s % d
  local before = ceil(x * n / d)
  return ceil((x + 1) * n / d) - before, before * d - x * n
end

local function instant(s, p)
  local n, d = rate_at(s)
  local _, rest = grid(s)
  return s * SECOND + ceil((rest + p * d) * SECOND / n)
end

-- first position of second s whose instant is not before `at`
local function position(s, at)
  local offset = at - s * SECOND
  if offset <= 0 then return 0 end
  local n, d = rate_at(s)
  local _, rest = grid(s)
  return max(0, ceil((offset * n - rest * SECOND) / (d * SECOND)))
end

-- the next second behind s that has a unit at all (rates below 1/s)
local function next_with_unit(s)
  local n, d = rate_at(s)
  local x = s % d
  local next = max(s + 1, s - x + floor(ceil(x * n / d) * d / n))
  if s < switch then return min(next, max(s + 1, switch)) end
  return next
end

-- high-water positions, read 64 seconds at a time, written once at the end
local chunks, changed, order = {}, {}, {}
local function high_water(s)
  local v = changed[s]
  if v then return v end
  local i = s - base
  local c = floor(i / 64)
  local chunk = chunks[c]
  if not chunk then
    chunk = call('GETRANGE', CAL, HEADER_BYTES + c * 256, HEADER_BYTES + c * 256 + 255)
    chunks[c] = chunk
  end
  local o = (i - c * 64) * 4
  return #chunk >= o + 4 and sunpack('<I4', chunk, o + 1) or 0
end

local function raise_high_water(s, v)
  if not changed[s] then order[#order + 1] = s end
  changed[s] = v
end

local function last_booked()
  local l, last = call('STRLEN', CAL), base - 1
  if l > HEADER_BYTES then last = base + ceil((l - HEADER_BYTES) / 4) - 1 end
  for _, s in ipairs(order) do last = max(last, s) end
  return last
end

-- hints: one bitmap per rate, lane view and exact cost; a set bit: this cost does not fit in this second, ever
local hint_names, marks, mark_order = {}, {}, {}
local function hint_of(units)
  local hint = hint_names[units]
  if not hint then
    hint = PREFIX .. 'full:' .. num .. '/' .. den .. ':0:' .. units
    hint_names[units] = hint
  end
  return hint
end

local function next_open(hint, s)
  local from = s - base
  local f = call('BITPOS', hint, 0, from, -1, 'BIT')
  if f < 0 then f = call('STRLEN', hint) * 8 end
  return base + max(f, from)                      -- a missing key answers 0 whatever the start
end

local function mark(hint, from, to)
  local t = marks[hint]
  if not t then t = {}; marks[hint] = t; mark_order[#mark_order + 1] = hint end
  local tail = t[#t]
  if tail and from >= tail[1] and from <= tail[2] + 1 then tail[2] = max(tail[2], to) else t[#t + 1] = { from, to } end
end

local function set_bits(hint, i, j)
  while i <= j and i % 8 ~= 0 do call('SETBIT', hint, i, 1); i = i + 1 end
  local bytes = floor((j + 1 - i) / 8)
  if bytes > 0 then call('SETRANGE', hint, i / 8, string.rep('\255', bytes)); i = i + bytes * 8 end
  while i <= j do call('SETBIT', hint, i, 1); i = i + 1 end
end

local function write_hints()
  for _, hint in ipairs(mark_order) do
    if call('SISMEMBER', PREFIX .. 'hints', hint) == 0 then
      if call('SCARD', PREFIX .. 'hints') >= HINTS_MAX then call('DEL', call('SPOP', PREFIX .. 'hints')) end
      call('SADD', PREFIX .. 'hints', hint)
    end
    for _, range in ipairs(marks[hint]) do set_bits(hint, range[1] - base, range[2] - base) end
    call('EXPIRE', hint, HINT_TTL)
  end
end

-- search: a place is a list of {second, position, units}; nil and the second to go on from when there is none at s
local function fit(s, units, elapsed)
  local p = max(high_water(s), elapsed)
  if grid(s) - p >= units then return { { s, p, units } } end
  return nil, s + 1
end

-- units over several seconds: the tail of s, then untouched seconds; the rest of the last one stays bookable
local function run(s, units, elapsed, last_s)
  local place, j, need = {}, s, units
  while need > 0 do
    if j > last_s then return nil end
    local room, p = grid(j), high_water(j)
    if room == 0 and j == s then return nil, next_with_unit(s) end
    if j == s then p = max(p, elapsed) elseif p > 0 then return nil, j end
    if j == s and room <= p then return nil, s + 1 end
    local take = min(room - p, need)
    if take > 0 then place[#place + 1] = { j, p, take }; need = need - take end
    j = room > 0 and j + 1 or next_with_unit(j)
  end
  return place
end

-- The earliest place for `units` at or after `start` (us), in a second up to `last_s`; nil when there is none.
local cursors = {}
local function find(units, start, last_s)
  local first = max(floor(start / SECOND), base)
  local elapsed = position(first, start)
  local hint, cursor_key = hint_of(units), units .. '@' .. first
  local search = units > floor(num / den) and run or fit
  if now_s < switch and units > floor(num0 / den0) then search = run end
  local s = cursors[cursor_key] or next_open(hint, first)
  local looks = 0
  while s <= last_s do
    local e = s == first and elapsed or 0
    local place, go_on = search(s, units, e, last_s)
    if place then cursors[cursor_key] = s; return place end
    if not go_on then return nil, last_s + 1 end          -- a run that ends too far
    -- not the partly elapsed second: an earlier start may still use it
    local from = e > 0 and s + 1 or s
    if from < go_on and s >= switch then mark(hint, from, go_on - 1) end
    looks, s = looks + 1, go_on
    if looks == WALK_LIMIT then s = max(s, last_booked() + 1)
    elseif looks == 1 or looks % 64 == 0 then s = max(s, next_open(hint, s)) end
  end
  return nil, s
end

local function outlive(s)
  if s > expiry - 3600 then
    expiry = s + 7200
    call('HSET', POLICY, 'idle_after', expiry)
    call('EXPIRE', CAL, expiry - now_s)
    header_dirty = true
  end
end

local function take(place)
  for _, t in ipairs(place) do raise_high_water(t[1], t[2] + t[3]) end
  outlive(place[#place][1])
end

-- A send above u0 leaves behind cost - u0 positions of its own: second and position of its departure.
local function departure(place, cost)
  local front = max(0, cost - u0)
  for _, t in ipairs(place) do
    if front < t[3] then return t[1], t[2] + front end
    front = front - t[3]
  end
end

-- Looks a slot up without taking it. Returns place, second, position, instant; or nil and the instant it would be at.
local function look_up(cost, start, reach_s)
  local units = cost + max(0, cost - u0)
  local place, s = find(units, start, floor(start / SECOND) + reach_s)
  if not place then return nil, s * SECOND end
  local sec, pos = departure(place, cost)
  return place, sec, pos, instant(sec, pos)
end

local function record_ttl(s) return max(1, s - now_s) + dedup end

local function finish()
  table.sort(order)
  local i = 1
  while i <= #order do
    local j, words = i, {}
    while j <= #order and order[j] == order[i] + (j - i) do words[#words + 1] = spack('<I4', changed[order[j]]); j = j + 1 end
    call('SETRANGE', CAL, HEADER_BYTES + (order[i] - base) * 4, table.concat(words))
    i = j
  end
  if header_dirty then call('SETRANGE', CAL, 0, pack_header()) end
  write_hints()
end
