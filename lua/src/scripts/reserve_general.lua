-- reserve, general path: from the first send that the straight-line part left.
if not C.begin() then return { now } end
load_seconds()
load_hints()
out[2] = H.lead
-- Ends before the next send when it has done so much, in about microseconds; the caller asks again for the others.
local WORK, SEND, LOOKED_UP = 1600, 8, 25
C.parts = 'more'
local soonest, soonest_rule = now + H.transit, 0
if max(H.cool, H.rest) > soonest then soonest, soonest_rule = max(H.cool, H.rest), 3 end
local cells, streaks, spaced = {}, {}, H.spacing > 0
-- what is booked while the budget is paused: with an end, or without
local paused_code = H.paused > now and (H.frozen > 0 and 16 or 15) or nil
local answer, book, reserve_known, hand_over, begin_streak, go_on
local function make_bookings()
  -- a recipient may have so many sends waiting
  local RECIPIENT_MOST = 1000
  local codes = { [CLAIMED] = 3, [SENT] = 4, [CANCELLED] = 5, [FAILED] = 6, [EXPIRED] = 7, [UNKNOWN] = 8 }

  function answer(code, seq, s, p, wait) return spack('<BI4I4I4i8', code, seq, s, p, wait) end

  -- A booking stands while its slot, with the patience, is ahead and still inside its second's capacity.
  local function stands(r)
    return r.epoch == H.epoch and C.instant(r.second, r.position) + PATIENCE >= now
      and r.position + (r.run and 1 or r.cost) <= (C.grid(r.second))
  end

  -- seq, lane, attempts, throttles and hops of the new booking; why, and of which record, when it is booked again
  function book(key, seq, lane, attempts, throttles, hops, digest, cost, not_before, deadline, recipient, why, r)
    load_book()
    if cost > H.max_cost then return answer(11, 0, 0, H.max_cost, 0) end
    local start, rule = soonest, soonest_rule
    if not_before > start then start, rule = ceil(not_before / SECOND) * SECOND, 2 end
    if start - now > H.horizon * SECOND then return answer(10, 0, 0, 0, start - now) end
    if recipient and H.spacing > 0 and #C.recipient_of(recipient) > RECIPIENT_MOST then return answer(14, 0, 0, 0, H.spacing) end
    local s, p, at, bound, place, under = C.look_up(lane, cost, start, rule, H.horizon, recipient, false)
    C.work = C.work + LOOKED_UP + 2 * #C.quotas
    if C.unfinished then return nil end
    if not s then return answer(10, 0, 0, 0, p - now) end
    if deadline > 0 and at > deadline then return answer(9, 0, s, p, at - now) end
    if at - now > H.horizon * SECOND then return answer(10, 0, s, p, at - now) end
    local longest = (lane_wait[lane] or 0) * SECOND
    if longest > 0 and at - start > longest then return answer(14, 0, s, p, at - start - longest) end
    local state = BOOKED + C.commit(lane, cost, s, p, at, place, under, recipient, false, deadline)
    local record = spack(RECORD, state, lane, attempts, throttles, seq, hops, cost, s, p, H.epoch, 0, C.origin_of(s, bound), 0, digest)
    if place or recipient then record = record .. C.tail_of(place, recipient) end
    call('SET', key, record, 'EX', C.record_ttl(s))
    if why then C.remember(key, why, bound, r.epoch == H.epoch and C.instant(r.second, r.position) or 0, at, r) end
    return answer(paused_code or bound * 32, seq, s, p, at - now), place
  end

  function reserve_known(key, record, send_flags, digest, cost, not_before, deadline, recipient, lane)
    load_record()
    load_book()
    local r = C.fetch(record)
    if r.state == CANCELLED then return answer(5, r.seq, 0, 0, 0) end
    if r.digest ~= digest then return answer(2, r.seq, 0, 0, 0) end
    if send_flags % 2 == 1 and r.state > CANCELLED then
      return book(key, r.seq + 1, lane, 0, 0, 0, digest, cost, not_before, deadline, recipient, 41, r)
    end
    if r.state ~= BOOKED then return answer(codes[r.state], r.seq, r.second, r.position, 0) end
    if stands(r) then return answer(paused_code and paused_code + 2 or 1, r.seq, r.second, r.position, C.instant(r.second, r.position) - now) end
    if r.epoch == H.epoch then C.give_back(r, nil, recipient) end
    local again = book(key, r.seq + 1, lane, r.attempts, r.throttles, r.hops, digest, cost, not_before, deadline, recipient, 40, r)
    if r.epoch == H.epoch and (not again or string.byte(again) % 32 ~= 0) then C.charge(r.cost, r.second, r.position, recipient) end
    return again
  end

  -- Streaks: a send goes on where the last one of its lane, cost and start was put, in a whole second without holes that this
  -- call knows (a cell), and then in the next one, as long as there is room; nothing is looked up. What streaks take is handed over to the calendar
  -- before anything else looks.
  -- all quotas together: from and until which instant their windows are those of the streak, units left, units taken
  local quota_from, quota_to, quota_room, quota_used = 0, 0, 0, 0
  local function hand_over_quotas()
    if quota_used == 0 then return end
    for _, q in ipairs(C.quotas) do C.charge_window(q, q.streak_window, quota_used, 0) end
    quota_used = 0
  end

  function hand_over()
    for s, c in pairs(cells) do
      if c.high > c.known then C.set(C.high_water, s, c.high); c.known = c.high end
      for lane, units in pairs(c.taken) do C.use(lane, s, units); c.taken[lane] = nil end
    end
    hand_over_quotas()
  end

  -- the cell of second s as the calendar has it now; nil when it is not simple
  local function cell(s)
    local high, c = C.get(C.high_water, s), cells[s]
    if high >= HOLES then
      if c then c.room, cells[s] = 0, nil end
      return nil
    end
    if not c then
      local room, rest = C.grid(s)
      -- as strings: Redis formats a number anew for each call
      c = { s = s, lag = C.lag_at(s), room = room, rest = rest, taken = {}, ttl = string.format('%d', C.record_ttl(s)) }
      if spaced then c.spacing_ttl = string.format('%d', s - now_s + ceil((H.spacing + H.jitter) / SECOND) + 2) end
      c.num, c.den = C.rate_at(s)
      cells[s] = c
    end
    c.high, c.known, c.left, c.held = high, high, {}, 0
    for lane, units in pairs(C.holding(s)) do
      if lane_preempts[lane] then units = 0 end
      local left = max(0, min(units, c.room) - C.used_by(lane, s))
      c.left[lane], c.held = left, c.held + left
    end
    return c
  end

  -- What all records and answers of a streak in one second have in common.
  local hundredths = floor(now % SECOND / 10000) * 16
  local function move_streak(streak, lane, cost, c)
    streak.cell = c
    streak.head = spack('<BBBBHHI3I4', BOOKED, lane, 0, 0, 1, 0, cost, c.s)
    streak.tail = spack('<I4I6I4I4', H.epoch, 0, (c.s - now_s) * 2048 + hundredths + streak.rule, 0)
    streak.answer = spack('<BI4I4', paused_code or streak.rule * 32, 1, c.s)
  end

  local function new_streak(lane, cost, start, c, rule)
    local longest, streak = lane_wait[lane] or 0, { rule = rule }
    streak.latest = min(now + H.horizon * SECOND, longest > 0 and start + longest * SECOND or now + FAR * SECOND)
    move_streak(streak, lane, cost, c)
    C.outlive(c.s)
    hand_over_quotas()                                -- of streaks in other windows
    quota_from, quota_to, quota_room = 0, 9007199254740992, 4294967295
    for _, q in ipairs(C.quotas) do
      local w = C.window(q, c.s * SECOND + c.lag)
      q.streak_window, quota_room = w, min(quota_room, q.limit - C.window_use(q, w)[1])
      quota_from, quota_to = max(quota_from, C.window_start(q, w)), min(quota_to, C.window_start(q, w + 1) - q.late)
    end
    return streak
  end

  -- whether a second may be a cell for this start: not the one that has begun
  local function whole(s, start) return s > C.second_of(start) or H.lag == 0 and start % SECOND == 0 end

  -- Whether its places are simply counted: no marks, nothing in front.
  local function streaky(lane, cost)
    return not lane_preempts[lane] and cost <= H.u0 and cost <= H.max_cost and not (C.preempting and (lane_share[lane] or 0) > 0)
  end

  -- Begins a streak behind a send that was just booked, when it was booked simply.
  function begin_streak(lane, cost, start, booked, place)
    local code, _, s = sunpack('<BI4I4', booked)
    if code ~= paused_code and code % 32 ~= 0 then return end
    if code == 7 * 32 or place or not streaky(lane, cost) then cells, streaks = {}, {}; return end
    if C.personal and not cells[s] then return end
    local c = cell(s)
    if C.personal or not c or not whole(s, start) then return end
    streaks[start][lane * 16777216 + cost] = new_streak(lane, cost, start, c, code == 6 * 32 and 6 or 1)
  end

  -- Whether a second that has begun has no place left, and whether only for what other lanes hold; nil when that is not simple.
  local function begun_and_full(s, lane, cost, start)
    local high, room, elapsed = C.get(C.high_water, s), C.grid(s), C.position(s, start)
    if high >= HOLES then return nil end
    local free = room - max(high, elapsed)
    return free - C.held_back(lane, s, elapsed, room) < cost, free >= cost
  end

  -- Whether it may take several seconds: then a second without room is not full for it, since it may start there.
  local function may_run(c, lane, cost)
    local own, held = C.holding(c.s)
    return cost > floor(c.num / c.den) - held + (own[lane] or 0)
  end

  -- Begins one at the first place, where that is simple; else false. Hints know neither the second that has begun nor one
  -- whose end others took.
  local function find_streak(lane, cost, start)
    if not streaky(lane, cost) then return false end
    local view, first, rule = (lane_share[lane] or 0) > 0 and lane + 1 or 0, max(C.second_of(start), H.base), 1
    local s = C.next_open(view, cost, first, first + H.horizon)
    if not whole(s, start) then
      local full, held = begun_and_full(s, lane, cost, start)
      if not full then return false end
      if held then rule = 6 end
      s = C.next_open(view, cost, s + 1, first + H.horizon)
    end
    for next = s, s + 3 do
      local c = cells[next] or cell(next)
      -- a send that stands right at its start is bound by what asks for it, and not by the rate
      if not c or next == first and c.high == 0 then return false end
      if c.high + cost + c.held - (c.left[lane] or 0) <= c.room then return new_streak(lane, cost, start, c, rule) end
      if may_run(c, lane, cost) then return false end
      if c.high + cost <= c.room then rule = 6 end
      C.mark_full(view, cost, next, next)
    end
    return false
  end

  function go_on(key, lane, digest, cost, start, deadline, recipient, spacing_key)
    local group, id = streaks[start], lane * 16777216 + cost
    if not group then group = {}; streaks[start] = group end
    local streak = group[id]
    if streak == nil then
      -- what is full for a lane without a reservation is full for all of these
      local view_0, other = (lane_share[lane] or 0) == 0, group[-cost]
      if view_0 and other and cells[other.cell.s] == other.cell and streaky(lane, cost) then
        streak = new_streak(lane, cost, start, other.cell, other.rule)
      else
        streak = find_streak(lane, cost, start)
      end
      group[id] = streak
      if view_0 and streak then group[-cost] = streak end
    end
    local c = streak and streak.cell
    if not c then return nil end
    local p, left = c.high, c.left[lane]
    if p + cost + c.held - (left or 0) > c.room then  -- this second is full for it: the next one, if that is as simple
      local s = c.s + 1
      C.mark_full((lane_share[lane] or 0) > 0 and lane + 1 or 0, cost, c.s, c.s)
      c = cells[s] or cell(s)
      if not c then return nil end
      p, left = c.high, c.left[lane]
      if p + cost + c.held - (left or 0) > c.room then return nil end
      move_streak(streak, lane, cost, c)
      C.outlive(s)
    end
    local at = c.s * SECOND + c.lag + ceil((c.rest + p * c.den) * SECOND / c.num)
    if at > streak.latest or deadline > 0 and at > deadline or at < quota_from or at >= quota_to or cost > quota_room then return nil end
    quota_room, quota_used = quota_room - cost, quota_used + cost
    if deadline > 0 then C.note_deadline(c.s, p, cost, deadline) end
    c.high = p + cost
    if left then
      local rest = max(0, left - cost)
      c.left[lane], c.held, c.taken[lane] = rest, c.held - left + rest, (c.taken[lane] or 0) + cost
    end
    local record = streak.head .. spack('<I3', p) .. streak.tail .. digest
    if recipient then
      record = record .. recipient
      call('SET', spacing_key, spack('<dI4I4d', 0, c.s, p, at), 'EX', c.spacing_ttl)
    end
    call('SET', key, record, 'EX', c.ttl)
    return streak.answer .. spack('<I4i8', p, at - now)
  end
end
make_bookings()

local personal = spaced or H.rcool > now
local ssub, sbyte, nobody = string.sub, string.byte, '\0\0\0\0\0\0\0\0'
records = records or call('MGET', unpack(KEYS, 3, n + 2))
local known_recipients, spacing_keys, met = {}, {}, {}
for j = 1, i - 1 do met[KEYS[j + 2]] = true end
if personal then load_rules() end
if spaced then
  for j = 1, n do spacing_keys[j] = PREFIX .. 'sp:' .. ssub(ARGV[j], 30, 37) end
  known_recipients = call('MGET', unpack(spacing_keys))
end
while i <= n and C.work < WORK do
  local key, send = KEYS[i + 2], ARGV[i]
  C.work = C.work + SEND
  local digest, extended, cost, not_before, deadline = sunpack('<c8BI4dd', send)
  local recipient, lane, send_flags = nil, 0, 0
  if extended == 1 then
    send_flags = sbyte(send, 38)
    lane = #send > 38 and lane_id[ssub(send, 39)] or #send == 38 and 0 or nil
    if personal then
      recipient = ssub(send, 30, 37)
      if recipient == nobody then recipient = nil end
    end
  end
  if not lane then out[i + 2] = answer(12, 0, 0, 0, 0)
  elseif spaced and not recipient then out[i + 2] = answer(13, 0, 0, 0, 0)
  else
    local start = not_before > soonest and ceil(not_before / SECOND) * SECOND or soonest
    local simple = not records[i] and not met[key] and start - now <= H.horizon * SECOND
      and (not recipient or spaced and not known_recipients[i] and not met[recipient])
    local booked = simple and go_on(key, lane, digest, cost, start, deadline, recipient, spacing_keys[i])
    if not booked then
      hand_over()
      local record = records[i]
      if met[key] then record = call('GET', key) end
      if not streaks[start] then streaks[start] = {} end
      if record then
        booked = reserve_known(key, record, send_flags, digest, cost, not_before, deadline, recipient, lane)
        if not booked then break end
        cells, streaks = {}, {}
      else
        local place
        booked, place = book(key, 1, lane, 0, 0, 0, digest, cost, not_before, deadline, recipient)
        if not booked then break end
        begin_streak(lane, cost, start, booked, place)
      end
    end
    out[i + 2], met[key] = booked, true
    if recipient then met[recipient] = true end
  end
  i = i + 1
end
hand_over()
C.finish()
return out
