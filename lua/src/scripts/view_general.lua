-- view, general path; nothing is written: what is brought up to date here stays in this call.
local policy = call('HMGET', POLICY, 'compiled', 'headroom', 'paused')
if not policy[1] then return { 0, now } end
local header = call('GETRANGE', CAL, 0, HEADER_BYTES - 1)
local known = #header == HEADER_BYTES
C.unpack_header(C.up_to_date(known and header or policy[1]))
if not known then
  H.base, H.cool, H.paused = now_s - PAST, 0, tonumber(policy[3] or 0)
end
C.load_tables()
if known then C.follow_lag() end
-- seconds are told by the clock: the calendar's, and how far it lags now
local first, lag_s = now_s - PAST, floor(now / SECOND) - now_s
if not known and H.level < LEVELS then C.change_rate(H.full_num, H.full_den, H.num, H.den) end
if C.segments then C.follow_ramp() end

-- n seconds of a string with u32 a second
local function row(key, skip, n)
  local i, lack = first - H.base, 0
  if i < 0 then i, lack = 0, min(n, -i) end
  local text = string.rep('\0', lack * 4)
  if known and lack < n then text = text .. call('GETRANGE', key, skip + i * 4, skip + (i + n - lack) * 4 - 1) end
  return text .. string.rep('\0', n * 4 - #text)
end

local n = PAST + WAITING
local units, holes = { sunpack('<' .. string.rep('I4', n), row(CAL, HEADER_BYTES, n)) }, false
for i = 1, n do
  if units[i] >= HOLES then units[i], holes = units[i] - HOLES, true end
end
if holes then
  local list = call('ZRANGEBYSCORE', PREFIX .. 'holes', first, first + n - 1, 'LIMIT', 0, HOLES_READ)
  for _, member in ipairs(list) do
    local s, _, free = sunpack('>I4I4I4', member)
    local i = s - first + 1
    if units[i] then units[i] = max(0, units[i] - free) end
  end
end

local capacity, booked, urgent, waiting = {}, {}, {}, 0
for i = 1, n do
  if i <= SECONDS then
    capacity[i], booked[i], urgent[i] = spack('<I4', (C.grid(first + i - 1))), spack('<I4', units[i]), '\0\0\0\0'
  end
  if i > PAST then waiting = waiting + units[i] end
end
if known and H.pre_until >= first then
  local seconds = {}
  for s = first, min(H.pre_until, first + SECONDS - 1) do seconds[#seconds + 1] = s end
  for i, marks in ipairs(call('HMGET', PREFIX .. 'pre', unpack(seconds))) do
    if marks then urgent[i] = string.sub(marks, 1, 4) end
  end
end

local until_s = known and H.base + ceil((call('STRLEN', CAL) - HEADER_BYTES) / 4) or 0
if until_s <= now_s then until_s = 0 elseif until_s > first + n then waiting = -1 end

-- calls and how they ended
local minute = floor(now / SECOND / 60)
local function calls_of(m) return PREFIX .. 'au:' .. string.format('%.0f', m) end
local function endings_of(m) return call('HGETALL', PREFIX .. 'en:' .. string.format('%.0f', m)) end
local before, this = call('GET', calls_of(minute - 1)) or '', call('GET', calls_of(minute)) or ''
local overdue = 0
if known and #before + #this == 0 then
  local m, oldest = minute - 2, max(H.base, now_s - 3600)
  while (m + 1) * 60 - lag_s > oldest and call('EXISTS', calls_of(m)) == 0 do m = m - 1 end
  oldest = max(oldest, (m + 1) * 60 - lag_s)
  if oldest < now_s then
    local at = HEADER_BYTES + (oldest - H.base) * 4
    local found = string.find(call('GETRANGE', CAL, at, at + (now_s - oldest) * 4 - 1), '[^%z]')
    if found then overdue = oldest + lag_s + floor((found - 1) / 4) end
  end
end

-- the same of a lane's pages
local function lane_row(i)
  if not known then return string.rep('\0', SECONDS * 4) end
  local key, p, o = PREFIX .. 'lu:' .. i .. ':' .. H.epoch .. ':', floor(first / PAGE), first % PAGE
  local text = call('GETRANGE', key .. p, o * 4, (o + SECONDS) * 4 - 1)
  text = text .. string.rep('\0', (min(SECONDS, PAGE - o)) * 4 - #text)
  if o + SECONDS > PAGE then text = text .. call('GETRANGE', key .. p + 1, 0, (o + SECONDS - PAGE) * 4 - 1) end
  return text .. string.rep('\0', SECONDS * 4 - #text)
end

local lanes = {}
for name, i in pairs(lane_id) do
  local held = (lane_share[i] or 0) > 0
  for _, v in ipairs({ name, lane_preempts[i] and 1 or 0, held and lane_row(i) or '' }) do
    lanes[#lanes + 1] = v
  end
end
local num, den = C.rate_at(now_s)
return { 1, now, first + lag_s, num, den, H.full_num, H.full_den, policy[2] or '', H.per, H.level, H.features % 32 >= 16 and 1 or 0,
  H.cool > now and H.cool or 0, H.paused > now and H.paused or 0, until_s > 0 and (until_s + lag_s) * SECOND or 0, waiting, overdue, table.concat(capacity),
  table.concat(booked), table.concat(urgent), before, this, endings_of(minute - 1), endings_of(minute), lanes }
