-- policy, general path.
local function apply()
  local old_gap, old_tat = gap, tat - (now - base * SECOND)
  local n0, d0 = rate_at(now_s)
  local keep = { base, epoch, cool, cool_set, expiry }
  unpack_header(ARGV[1])
  base, epoch, cool, cool_set, expiry = keep[1], keep[2], keep[3], keep[4], keep[5]
  switch, num0, den0 = 0, num, den
  if num * d0 > n0 * den then switch, num0, den0 = now_s + ceil((lead + SECOND) / SECOND) + 1, n0, d0 end
  tat = now - base * SECOND + old_tat / old_gap * gap     -- what was used stays used, in units
  header_dirty = true
end

local known = load_header()
local version = call('HINCRBY', POLICY, 'version', 1)
call('HSET', POLICY, 'compiled', ARGV[1], unpack(settings))
if known then apply() else new_calendar(ARGV[1], false) end
header_dirty = true
finish()
return { version, now, switch }
