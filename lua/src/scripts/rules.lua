-- rules.lua: limits besides the rate: quotas (units per fixed window) and spacing between sends to one recipient.
-- A quota's key: u32 index of its first window, 8 bytes without a meaning; then booked and sent of each window. Beside it
-- full:64:… and full:4096:…, the least units that are booked in one of so many windows, or fewer, u32 each: what was looked at in
-- vain is passed by the next look-up, for any cost and limit. A charge leaves them, what comes back lowers them.
local function load_rules()
  if C.load_quotas then return end
  local BLOCK, LOOKS, ROUNDS = 4096, 150, 400
  local looks, rounds = 0, 0
  local function least_key(q, level) return PREFIX .. 'full:' .. 64 ^ level .. string.sub(q.key, #PREFIX + 2) end

  -- Cuts off windows that are over, in whole blocks, and only when these are most of the string.
  local function trim(q, w)
    local blocks = floor((w - 1 - q.first) / BLOCK)
    local gone = 12 + blocks * BLOCK * 8
    if C.trimmed or blocks < 1 or call('STRLEN', q.key) > 2 * gone then return false end
    q.first, C.trimmed = q.first + blocks * BLOCK, true       -- one a call
    call('SET', q.key, spack('<I4I4I4', q.first, 0, 0) .. call('GETRANGE', q.key, gone, -1), 'KEEPTTL')
    for level = 1, 2 do
      local key = least_key(q, level)
      local kept = call('GETRANGE', key, blocks * BLOCK / 64 ^ level * 4, -1)
      if #kept > 0 then call('SET', key, kept, 'KEEPTTL') else call('DEL', key) end
    end
    return true
  end

  function C.load_quotas()
    for o = 1, #quota_table, 12 do
      local limit, length, offset = sunpack('<I4I4i4', quota_table, o)
      local q = { limit = limit, length = length * SECOND, offset = offset * SECOND, seen = {}, chunks = {}, changed = {}, last = 0,
        key = PREFIX .. 'q:' .. length .. ':' .. offset }
      -- how far from its end a window is booked; a send that is later falls into the next one, where the claim counts it
      q.late = min(H.jitter, q.length / 10)
      local head = call('GETRANGE', q.key, 0, 12 + 511)      -- and the first 64 windows
      local w = floor((now + q.offset) / q.length)
      q.known = #head >= 12
      if q.known then
        q.first = sunpack('<I4', head)
        if not trim(q, w) then q.chunks[0] = string.sub(head, 13) end
      else q.first, q.changed_head = w - 1, true end
      C.quotas[#C.quotas + 1] = q
    end
  end

  function C.window(q, at) return max(q.first, floor((at + q.offset) / q.length)) end
  function C.window_start(q, w) return w * q.length - q.offset end

  -- {booked, sent} of window w
  function C.window_use(q, w)
    local u = q.seen[w]
    if not u then
      local c = floor((w - q.first) / 64)
      local chunk = q.chunks[c]
      if not chunk then chunk = call('GETRANGE', q.key, 12 + c * 512, 12 + c * 512 + 511); q.chunks[c] = chunk end
      local o = (w - q.first - c * 64) * 8
      u = #chunk >= o + 8 and { sunpack('<I4I4', chunk, o + 1) } or { 0, 0 }
      q.seen[w] = u
    end
    return u
  end

  local function load_least(q)
    if q.least then return end
    load_seconds()
    q.least = { C.numbers(least_key(q, 1), 0, 0), C.numbers(least_key(q, 2), 0, 0) }
    if not q.known then call('DEL', q.least[1].key, q.least[2].key) end
  end

  -- The first of the 64 windows of chunk c, from the i-th window of all on, with at most `most` units; else nil, and the least of all
  -- is noted.
  local function look_into(q, c, i, most)
    local chunk, least = q.chunks[c], 4294967295
    if not chunk then chunk = call('GETRANGE', q.key, 12 + c * 512, 12 + c * 512 + 511) end
    local n = floor(#chunk / 8)
    local uses = { sunpack('<' .. string.rep('I4', 2 * n), chunk) }
    for j = 0, 63 do
      local u = q.seen[q.first + c * 64 + j]
      local booked = u and u[1] or j < n and uses[2 * j + 1] or 0
      if booked <= most and c * 64 + j >= i then return c * 64 + j end
      if booked < least then least = booked end
    end
    C.set(q.least[1], c, least)
  end

  -- The same of a block of 64 chunks.
  local function note_block(q, b)
    local least = 4294967295
    for c = b * 64, b * 64 + 63 do least = min(least, C.get(q.least[1], c)) end
    C.set(q.least[2], b, least)
  end

  -- The first window from w on with room for cost. After LOOKS looks of a call it is the one behind all others: what was looked at is
  -- passed by the next call.
  local function window_with_room(q, w, cost)
    if cost > q.limit then return w + ceil(2 * FAR * SECOND / q.length) end
    local most = q.limit - cost
    if C.window_use(q, w)[1] <= most then return w end
    load_least(q)
    local i = w - q.first
    while true do
      local c = floor(i / 64)
      if i % BLOCK == 0 and C.get(q.least[2], i / BLOCK) > most then i = i + BLOCK
      elseif i % 64 == 0 and C.get(q.least[1], c) > most then i = i + 64
      else
        if looks >= LOOKS then
          if C.parts == 'exact' then C.unfinished = true; return q.first + i end
          return max(q.first + i, q.last + 1, q.first + ceil((call('STRLEN', q.key) - 12) / 8))
        end
        looks, C.work = looks + 1, C.work + 15
        local found = look_into(q, c, i, most)
        if found then return q.first + found end
        i = c * 64 + 64
      end
      if i % BLOCK == 0 and C.get(q.least[2], i / BLOCK - 1) <= most then note_block(q, i / BLOCK - 1) end
    end
  end

  function C.charge_window(q, w, booked, sent)
    local u = C.window_use(q, w)
    if u[1] == 0 and u[2] == 0 then q.fresh = true end
    u[1], u[2] = max(0, u[1] + booked), max(0, u[2] + sent)
    q.changed[w], q.last = true, max(q.last, w)
    if booked < 0 then
      load_least(q)
      for level = 1, 2 do
        local i = floor((w - q.first) / 64 ^ level)
        if C.get(q.least[level], i) > u[1] then C.set(q.least[level], i, u[1]) end
      end
    end
  end

  function C.write_quotas()
    for _, q in ipairs(C.quotas) do
      if q.changed_head and q.last > 0 then call('SETRANGE', q.key, 0, spack('<I4I4I4', q.first, 0, 0)) end
      for w in pairs(q.changed) do
        local u = q.seen[w]
        call('SETRANGE', q.key, 12 + (w - q.first) * 8, spack('<I4I4', u[1], u[2]))
      end
      if q.last > 0 and (q.changed_head or q.fresh) then
        local ttl = ceil((C.window_start(q, q.last + 2) - now) / SECOND)
        if call('TTL', q.key) < ttl then call('EXPIRE', q.key, ttl) end
      end
      if q.least and (q.known or q.last > 0) then
        for _, row in ipairs(q.least) do
          if #row.order > 0 then
            C.write_numbers(row)
            call('EXPIRE', row.key, max(1, call('TTL', q.key)))
          end
        end
      end
    end
  end

  -- No booking holds any more, only what was sent counts.
  function C.void_quotas()
    for _, q in ipairs(C.quotas) do
      if q.known then
        local w = C.window(q, now)
        local sent = C.window_use(q, w)[2]
        q.first, q.seen, q.chunks = w, {}, {}
        call('SET', q.key, spack('<I4I4I4I4I4', w, 0, 0, sent, sent), 'KEEPTTL')
        call('DEL', least_key(q, 1), least_key(q, 2))
      end
    end
  end

  -- A recipient's key: end of its cooldown (us), then '<I4I4d' second, position (+ SENT_FLAG when it was claimed) and instant of
  -- each booking (of the claim, then), ascending.
  local SENT_FLAG, recipients, recipients_changed = 2147483648, {}, {}
  local function unpack_recipient(packed)
    local t = { 0 }
    if packed then
      t[1] = sunpack('<d', packed)
      for o = 9, #packed - 15, 16 do t[#t + 1] = { sunpack('<I4I4d', packed, o) } end
    end
    return t
  end

  function C.recipient_of(id)
    local t = recipients[id]
    if not t then
      t = unpack_recipient(call('GET', PREFIX .. 'sp:' .. id))
      recipients[id] = t
    end
    return t
  end

  -- The earliest instant from `at` on that is clear of a recipient's cooldown and bookings, with the jitter on top.
  local function clear_of(id, at)
    local t = C.recipient_of(id)
    local clear, apart = max(at, t[1]), H.spacing + H.jitter
    if H.spacing > 0 then
      for i = 2, #t do
        local booked = t[i][3]
        if booked - apart >= clear then break end
        -- a start is a whole second
        if booked + apart > clear then clear = ceil((booked + apart) / SECOND) * SECOND end
      end
    end
    return clear
  end

  function C.charge_recipient(id, s, p, at)
    local t = C.recipient_of(id)
    local i = #t + 1
    while i > 2 and t[i - 1][3] > at do i = i - 1 end
    table.insert(t, i, { s, p, at })
    recipients_changed[id] = true
  end

  function C.refund_recipient(id, s, p)
    local t = C.recipient_of(id)
    for i = #t, 2, -1 do
      if t[i][1] == s and t[i][2] % SENT_FLAG == p then table.remove(t, i); recipients_changed[id] = true; return end
    end
  end

  -- Spacing is a law at the claim as well. Returns the instant before which this send may not leave at `call`, or nil and notes
  -- that it does.
  function C.claim_recipient(id, s, p, call)
    local t, own = C.recipient_of(id), nil
    for i = 2, #t do
      local b = t[i]
      if b[1] == s and b[2] % SENT_FLAG == p then own = b
      elseif b[2] >= SENT_FLAG and call - b[3] < H.spacing then return b[3] + H.spacing end
    end
    if not own then
      C.charge_recipient(id, s, p, call)
      return C.claim_recipient(id, s, p, call)
    end
    own[2], own[3], recipients_changed[id] = p + SENT_FLAG, call, true
  end

  -- The call was not made: what was noted of it is a booking again.
  function C.unclaim_recipient(id, s, p, at)
    for i, b in ipairs(C.recipient_of(id)) do
      if i > 1 and b[1] == s and b[2] == p + SENT_FLAG then b[2], b[3], recipients_changed[id] = p, at, true end
    end
  end

  -- Whether a call at this instant takes from others what they are promised: a quota's window in which it is not booked has
  -- no room, or its recipient's next send is too near.
  function C.intrudes(at, call, cost, id)
    for _, q in ipairs(C.quotas) do
      local w = C.window(q, call)
      if w ~= C.window(q, at) and C.window_use(q, w)[1] + cost > q.limit then return true end
    end
    if id and H.spacing > 0 then
      for i, b in ipairs(C.recipient_of(id)) do
        if i > 1 and b[3] > max(at, call) and b[3] - call < H.spacing then return true end
      end
    end
    return false
  end

  -- The send that was booked for `at` is called at `call` (sign 1), or was not called after all (-1).
  function C.count_call(at, call, cost, sign)
    for _, q in ipairs(C.quotas) do
      local booked, called = C.window(q, at), C.window(q, call)
      if booked ~= called then C.charge_window(q, booked, -sign * cost, 0) end
      C.charge_window(q, called, booked ~= called and sign * cost or 0, sign * cost)
    end
  end

  function C.cool_recipient(id, till)
    local t = C.recipient_of(id)
    t[1], recipients_changed[id] = max(t[1], till), true
    H.rcool, H.dirty = max(H.rcool, till), true
  end

  function C.write_recipients()
    for id in pairs(recipients_changed) do
      local t = recipients[id]
      local last, parts = t[1], { spack('<d', t[1]) }
      for i = 2, #t do
        local b = t[i]
        if b[3] > now - H.spacing then parts[#parts + 1] = spack('<I4I4d', b[1], b[2], b[3]); last = max(last, b[3] + H.spacing + H.jitter) end
      end
      if last > now then call('SET', PREFIX .. 'sp:' .. id, table.concat(parts), 'PX', string.format('%.0f', ceil((last - now) / 1000)))
      else call('DEL', PREFIX .. 'sp:' .. id) end
    end
  end

  -- nil when a send may leave at `at`; else the instant from which to look again, and the rule that says so.
  function C.blocked(at, cost, recipient)
    local from, moved = at, false
    repeat
      moved = false
      for _, q in ipairs(C.quotas) do
        local w = C.window(q, from)
        local open = window_with_room(q, w, cost)
        -- a late send leaves in its own window all the same
        if open == w and C.window(q, from + q.late) > w then open = w + 1 end
        if open > w then from, moved = C.window_start(q, open), true end
      end
      if moved then rounds, C.work = rounds + 1, C.work + 2 * #C.quotas end
    until not moved or rounds >= ROUNDS
    if from > at then return from, 4 end
    if recipient then
      local clear = clear_of(recipient, at)
      if clear > at then return ceil(clear / SECOND) * SECOND, 5 end
    end
  end
end
