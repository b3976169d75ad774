-- quote, general path. What is taken here is taken in memory only.
local LOOKS = 4000
local function reply(code, placed) return { code, now, 0, placed or 0, 0, 0, 0, 0, 0 } end
if not C.begin() then return reply(6) end
load_book()
C.write_hints = function() end                      -- what it finds full is full in memory only
local lane = lane_id[ARGV[2]]
if not lane then return reply(5) end
if cost > H.max_cost then return reply(4, H.max_cost) end
local start, rule = now + H.transit, 0
if H.cool > start then start, rule = H.cool, 3 end
if not_before > start then start, rule = ceil(not_before / SECOND) * SECOND, 2 end
if began == 0 then began = start end
if start - now > H.horizon * SECOND then return reply(2) end
if from > start then start, rule = from, 1 end
local longest = (lane_wait[lane] or 0) * SECOND

local code, placed, first, last, bound, go_on, hours, hour_order = 0, 0, 0, 0, 0, 0, {}, {}
local function note(at, n)
  local hour = floor(at / 3600000000) * 3600
  if not hours[hour] then hours[hour] = 0; hour_order[#hour_order + 1] = hour end
  hours[hour], placed = hours[hour] + n, placed + n
end

local charged = {}        -- by quota: units of this quote in each window
local function charge(i, q, w, units)
  if not charged[i] then charged[i] = {} end
  charged[i][w] = (charged[i][w] or 0) + units
  C.charge_window(q, w, units, 0)
end
for i, q in ipairs(C.quotas) do
  local at = 29 + i * 4
  if #ARGV[1] >= at + 3 then charge(i, q, C.window(q, from), (sunpack('<I4', ARGV[1], at))) end
end

-- how many sends of this kind fit side by side from position p of second s on
local function side_by_side(s, p, at)
  local high, room = C.get(C.high_water, s), C.grid(s)
  if high >= HOLES or p < high then return 1 end
  local n = floor((room - p - C.held_back(lane, s, p > high and p or 0, room)) / cost)
  for _, q in ipairs(C.quotas) do n = min(n, floor((q.limit - C.window_use(q, C.window(q, at))[1]) / cost)) end
  return max(1, min(n, count - placed))
end

for look = 1, LOOKS do
  local s, p, at, why, place, under = C.look_up(lane, cost, start, rule, max(1, H.horizon - floor((start - now) / SECOND)), nil, false)
  if not s or at - now > H.horizon * SECOND then code = 2; break end
  if longest > 0 and at - began > longest then code = 3; break end
  local n = (place or under or cost > H.u0) and 1 or side_by_side(s, p, at)
  if first == 0 then first = at end
  last, bound = C.instant(s, p + (n - 1) * cost), why
  if last - now > H.horizon * SECOND or longest > 0 and last - began > longest then n, last = 1, at end
  note(at, n)
  for _, t in ipairs(place or { { s, p, n * cost } }) do
    go_on = C.instant(t[1], t[2] + t[3])
    if under then C.set_marks(t[1], t[2], t[3], 1); C.count_marks(t[1], 1, t[3]) else C.take(lane, t[1], t[2], t[3]) end
    if lane_preempts[lane] and not under then C.set_marks(t[1], t[2], t[3], 1); C.count_marks(t[1], 1, t[3]) end
  end
  if cost > H.u0 then C.add_block(s, p, cost, place, C.began) end
  for i, q in ipairs(C.quotas) do charge(i, q, C.window(q, at), n * cost) end
  if placed >= count then break end
  if look == LOOKS then code = 1 end
end
local answer = { code, now, began, placed, first, last, go_on, bound, #C.quotas }
for i, q in ipairs(C.quotas) do answer[#answer + 1] = charged[i] and charged[i][C.window(q, go_on)] or 0 end
for _, hour in ipairs(hour_order) do answer[#answer + 1] = hour; answer[#answer + 1] = hours[hour] end
return answer
