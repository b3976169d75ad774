-- policy, general path.
-- Lanes keep their index for as long as bookings may know it; one that is gone is marked so, and its index is used again
-- only when all 64 are.
local function index_lanes(known)
  local index, taken, rows, kept = {}, {}, {}, {}
  local o = 1
  while o <= #known do
    local i, lane_flags, share, wait, length = sunpack('<BBI4I4B', known, o)
    local name = string.sub(known, o + 11, o + 10 + length)
    index[name], taken[i], kept[#kept + 1] = i, true, { i, name }
    o = o + 11 + length
  end
  index.default, taken[0], o = 0, true, 1
  local named, next = {}, 1
  while o <= #ARGV[2] do
    local _, _, _, length = sunpack('<BI4I4B', ARGV[2], o)
    local name = string.sub(ARGV[2], o + 10, o + 9 + length)
    named[name] = true
    if index[name] then named[index[name]] = true end
    o = o + 10 + length
  end
  o = 1
  while o <= #ARGV[2] do
    local lane_flags, share, wait, length = sunpack('<BI4I4B', ARGV[2], o)
    local name = string.sub(ARGV[2], o + 10, o + 9 + length)
    local i = index[name]
    while not i do
      if next > 63 then next = 1; for _, k in ipairs(kept) do if not named[k[2]] then taken[k[1]] = nil end end end
      if not taken[next] then i = next; taken[i] = true end
      next = next + 1
    end
    named[name], named[i] = true, true
    rows[#rows + 1] = spack('<BBI4I4B', i, lane_flags, share, wait, length) .. name
    o = o + 10 + length
  end
  for _, k in ipairs(kept) do
    if not named[k[2]] and not named[k[1]] then rows[#rows + 1] = spack('<BBI4I4B', k[1], 128, 0, 0, #k[2]) .. k[2] end
  end
  return table.concat(rows)
end

local function apply()
  local n0, d0 = C.rate_at(now_s)
  local old_gap, used_until, was = H.gap, H.tat - (now - H.base * SECOND), { H.base, H.epoch, H.cool, H.cool_set, H.expiry }
  local pending = H.switch > now_s and { H.switch, H.num0, H.den0, H.full_num, H.full_den, H.level }
  local kept = { H.pre_until, H.firm, H.paused, H.rcool, H.level, H.last_cut, H.last_raise, H.lag, H.rest, H.frozen, H.pull_until, now - H.base * SECOND }
  C.unpack_header(ARGV[1])
  H.base, H.epoch, H.cool, H.cool_set, H.expiry = unpack(was)
  local old_level
  H.pre_until, H.firm, H.paused, H.rcool, old_level, H.last_cut, H.last_raise, H.lag, H.rest, H.frozen, H.pull_until, H.lifted = unpack(kept)
  H.level = min(H.ceiling_level, max(H.floor_level, old_level))
  if H.features % 32 < 16 then H.level = H.ceiling_level end
  C.load_segments(ARGV[4])
  H.tat = now - H.base * SECOND + used_until / old_gap * H.gap     -- what was used stays used, in units
  if C.segments then C.follow_ramp() end
  C.change_rate(H.full_num, H.full_den, n0, d0)
  -- a raise that is under way, and stays what it was, keeps its second
  if pending and pending[4] == H.full_num and pending[5] == H.full_den and pending[6] == H.level then
    H.switch, H.num0, H.den0 = unpack(pending)
  end
  if H.switch > now_s then load_seconds(); H.pull_until = C.last_booked() end
  -- what was sent under the old policy is not forgotten under the new one
  H.burst = max(H.burst, H.tat - (now - H.base * SECOND))
end

local known = C.begin()
local lane_table = index_lanes(call('HGET', POLICY, 'lane_table') or '')
if lane_table ~= (call('HGET', POLICY, 'lane_table') or '') then
  C.drop_hints()
  -- what a lane has used counts from the moment it has a reservation
  local reserves, o = {}, 1
  while o <= #lane_table do
    local i, _, share, _, length = sunpack('<BBI4I4B', lane_table, o)
    reserves[i] = share > 0
    o = o + 11 + length
  end
  for i, share in pairs(lane_share) do
    if share > 0 and not reserves[i] and known then
      local pages = {}
      for p = floor(now_s / PAGE), floor(H.expiry / PAGE) do pages[#pages + 1] = PREFIX .. 'lu:' .. i .. ':' .. H.epoch .. ':' .. p end
      call('UNLINK', unpack(pages))
    end
  end
end
-- Records that were stored before the time they are kept was raised end by the old one: until all of these are over, a copy without a
-- record is as old as it takes.
local function keep_shorter_memory()
  local before, after = H.dedup, (sunpack('<I4', ARGV[1], 81))
  local shorter = call('HMGET', POLICY, 'dedup_before', 'dedup_before_until')
  local until_s = tonumber(shorter[2] or 0)
  if until_s > floor(now / SECOND) then before = min(before, tonumber(shorter[1])) end
  if before < after then
    call('HSET', POLICY, 'dedup_before', before, 'dedup_before_until', max(until_s, floor(now / SECOND) + H.horizon + after))
  end
end
if known then keep_shorter_memory() end
local version = call('HINCRBY', POLICY, 'version', 1)
call('HSET', POLICY, 'compiled', ARGV[1], 'lane_table', lane_table, 'quota_table', ARGV[3], 'segments', ARGV[4], unpack(settings))
if known then apply() else C.new_calendar(ARGV[1], false) end
C.quotas, quota_table = {}, ARGV[3]
if H.has_quotas then load_rules(); C.load_quotas() end
H.dirty = true
C.finish()
return { version, now, H.switch }
