-- quote, general path. What is taken here is taken in memory only.
local WORK = 1200            -- about microseconds
-- What a part has to know of those before it: where the first one began; from where the last look was made, behind full quotas, and
-- which rule says so; up to where free places were looked at, and how many of that
-- second before that are free and fit nobody; up to where places of others were looked at, and the units of this quote in that
-- second and in the next one. Behind it for each quota, as '<I4I4': units of this quote in the window of the first instant, and in that of
-- the other one when it is another.
local REST = '<dddBdI4I4I4'
local function reply(code, most) return { code, now, most or 0, 0, 0, 0, '' } end
if not C.begin() then return reply(6) end
load_book()
C.write_hints = function() end                      -- what it finds full is full in memory only
local lane = lane_id[to_lane]
if not lane then return reply(5) end
if cost > H.max_cost then return reply(4, H.max_cost) end
local start, rule = now + H.transit, 0
if max(H.cool, H.rest) > start then start, rule = max(H.cool, H.rest), 3 end
if not_before > start then start, rule = ceil(not_before / SECOND) * SECOND, 2 end
if start - now > H.horizon * SECOND then return reply(2) end
C.parts, C.touch = 'exact', nil                     -- what is taken over here cannot be taken over again
local units, began, from, taken, used = cost > H.u0 and 2 * cost - H.u0 or cost, start, 0, 0, {}
local marks_of = {}                                 -- by second: units of this quote
if rest ~= '' then
  local skipped, here, behind
  began, start, from, rule, taken, skipped, here, behind = sunpack(REST, rest)
  C.go_on_from(from, skipped, lane)
  if cost > H.u0 then load_heavy(); C.stood_before(from, began, cost) end
  local s = C.second_of(taken)
  if taken > 0 then C.pass(lane, units, false, began, s, C.position(s, taken - 1)) end
  marks_of[s], marks_of[s + 1] = here, behind
  C.count_marks(s, 1, here)
  C.count_marks(s + 1, 1, behind)
end
local longest = (lane_wait[lane] or 0) * SECOND

local code, placed, first, last, bound, hours, hour_order = 1, 0, 0, 0, 0, {}, {}
local function note(at, n)
  local hour = floor(at / 3600000000) * 3600
  if not hours[hour] then hours[hour] = 0; hour_order[#hour_order + 1] = hour end
  hours[hour], placed = hours[hour] + n, placed + n
end

local function mark(s, p, n)
  C.set_marks(s, p, n, 1)
  C.count_marks(s, 1, n)
  marks_of[s] = (marks_of[s] or 0) + n
end

local charged = {}        -- by quota: units of this quote in each window
local function charge(i, q, w, n)
  if not charged[i] then charged[i] = {} end
  charged[i][w] = (charged[i][w] or 0) + n
  C.charge_window(q, w, n, 0)
end
for i, q in ipairs(C.quotas) do
  local o = 38 + i * 8
  if #rest >= o + 7 then
    local at_from, at_taken = sunpack('<I4I4', rest, o)
    charge(i, q, C.window(q, from), at_from)
    if at_taken > 0 then charge(i, q, C.window(q, taken), at_taken) end
  end
end

-- how many sends of this kind fit side by side from position p of second s on
local function side_by_side(s, p, at)
  local high, room = C.get(C.high_water, s), C.grid(s)
  if high >= HOLES or p < high then return 1 end
  local elapsed = s == C.second_of(began) and C.position(s, began) or 0
  local n = floor((room - p - C.held_back(lane, s, elapsed, room)) / cost)
  for _, q in ipairs(C.quotas) do n = min(n, floor((q.limit - C.window_use(q, C.window(q, at))[1]) / cost)) end
  return max(1, min(n, count - placed))
end

repeat
  local s, p, at, why, place, under = C.look_up(lane, cost, start, rule, max(1, H.horizon - floor((start - now) / SECOND)), nil, false)
  if C.unfinished then
    if not s then from = max(from, p) end
    break
  end
  if not s or at - now > H.horizon * SECOND then code = 2; break end
  if longest > 0 and at - began > longest then code = 3; break end
  local n = (place or under or cost > H.u0) and 1 or side_by_side(s, p, at)
  if first == 0 or at < first then first = at end
  last, bound = C.instant(s, p + (n - 1) * cost), why
  if last - now > H.horizon * SECOND or longest > 0 and last - began > longest then n, last = 1, at end
  note(at, n)
  for _, t in ipairs(place or { { s, p, n * cost } }) do
    if not under then
      from = C.instant(t[1], t[2] + t[3])
      C.take(lane, t[1], t[2], t[3])
    end
    if under then C.pass(lane, units, false, start, t[1], t[2] + t[3]) end
    if under or lane_preempts[lane] then mark(t[1], t[2], t[3]) end
    C.work = C.work + 4
  end
  if cost > H.u0 then C.add_block(s, p, cost, place, C.began) end
  for i, q in ipairs(C.quotas) do charge(i, q, C.window(q, at), n * cost) end
  if placed >= count then code = 0 end
until code == 0 or C.work >= WORK

local s, p = C.passed(lane, units, false)
taken = s > 0 and C.instant(s, p) or 0              -- behind a second's last position: in the next one
s = C.second_of(taken)
if H.paused > now then bound = H.frozen > 0 and 9 or 8 end
local answer = { code, now, placed, first, last, bound,
  spack(REST, began, C.looked_from, from, C.looked_rule, taken, C.skipped(from, began), marks_of[s] or 0, marks_of[s + 1] or 0) }
for i, q in ipairs(C.quotas) do
  local of_window, w, w2 = charged[i] or {}, C.window(q, from), C.window(q, taken)
  answer[7] = answer[7] .. spack('<I4I4', of_window[w] or 0, taken > 0 and w2 ~= w and of_window[w2] or 0)
end
for _, hour in ipairs(hour_order) do answer[#answer + 1] = hour; answer[#answer + 1] = hours[hour] end
return answer
