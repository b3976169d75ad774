-- rules.lua: limits besides the rate: quotas (units per fixed window) and spacing between sends to one recipient.
-- A quota's key: u32 index of its first window; from and up to which window all are full; then booked and sent of each.
local function load_rules()
  if C.load_quotas then return end
  function C.load_quotas()
    for o = 1, #quota_table, 12 do
      local limit, length, offset = sunpack('<I4I4i4', quota_table, o)
      local q = { limit = limit, length = length * SECOND, offset = offset * SECOND, seen = {}, chunks = {}, changed = {}, last = 0,
        key = PREFIX .. 'q:' .. length .. ':' .. offset }
      -- how far from its end a window is booked; a send that is later falls into the next one, where the claim counts it
      q.late = min(H.jitter, q.length / 10)
      local head = call('GETRANGE', q.key, 0, 12 + 511)      -- and the first 64 windows
      q.known = #head >= 12
      if q.known then q.first, q.full_from, q.full_to = sunpack('<I4I4I4', head); q.chunks[0] = string.sub(head, 13)
      else q.first, q.full_from, q.full_to = floor((now + q.offset) / q.length) - 1, 0, 0; q.changed_head = true end
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

  -- the first window from w on with room for cost
  local function window_with_room(q, w, cost)
    if cost > q.limit then return w + ceil(2 * FAR * SECOND / q.length) end
    local from = w
    if w >= q.full_from and w < q.full_to then w = q.full_to end
    while C.window_use(q, w)[1] >= q.limit do w = w + 1 end
    if w > from and (from < q.full_from or w > q.full_to) then
      q.full_from, q.full_to, q.changed_head = from <= q.full_to and min(from, q.full_from) or from, w, true
    end
    while C.window_use(q, w)[1] + cost > q.limit do w = w + 1 end
    return w
  end

  function C.charge_window(q, w, booked, sent)
    local u = C.window_use(q, w)
    if u[1] == 0 and u[2] == 0 then q.fresh = true end
    u[1], u[2] = max(0, u[1] + booked), max(0, u[2] + sent)
    q.changed[w], q.last = true, max(q.last, w)
    if booked < 0 and w >= q.full_from and w < q.full_to then q.full_to, q.changed_head = w, true end
  end

  function C.write_quotas()
    for _, q in ipairs(C.quotas) do
      if q.changed_head and (q.known or q.last > 0) then call('SETRANGE', q.key, 0, spack('<I4I4I4', q.first, q.full_from, q.full_to)) end
      for w in pairs(q.changed) do
        local u = q.seen[w]
        call('SETRANGE', q.key, 12 + (w - q.first) * 8, spack('<I4I4', u[1], u[2]))
      end
      if q.last > 0 and (q.changed_head or q.fresh) then
        local ttl = ceil((C.window_start(q, q.last + 2) - now) / SECOND)
        if call('TTL', q.key) < ttl then call('EXPIRE', q.key, ttl) end
      end
    end
  end

  -- Cuts off windows that are over. void: no booking holds any more, only what was sent counts.
  function C.trim_quotas(void)
    for _, q in ipairs(C.quotas) do
      local w = floor((now + q.offset) / q.length)
      if q.known then
        local first = max(q.first, w - 1)
        local kept = call('GETRANGE', q.key, 12 + (first - q.first) * 8, -1)
        if void then
          local o = (w - first) * 8
          local _, sent = 0, 0
          if #kept >= o + 8 then _, sent = sunpack('<I4I4', kept, o + 1) end
          kept = string.sub(kept, 1, o) .. (#kept >= o + 8 and spack('<I4I4', sent, sent) or '')
        end
        q.first, q.full_from, q.full_to, q.seen, q.chunks = first, 0, 0, {}, {}
        call('SET', q.key, spack('<I4I4I4', first, 0, 0) .. kept, 'KEEPTTL')
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
    for _, q in ipairs(C.quotas) do
      local w = C.window(q, at)
      local open = window_with_room(q, w, cost)
      -- a late send leaves in its own window all the same
      if open == w and C.window(q, at + q.late) > w then open = w + 1 end
      if open > w then return C.window_start(q, open), 4 end
    end
    if recipient then
      local clear = clear_of(recipient, at)
      if clear > at then return ceil(clear / SECOND) * SECOND, 5 end
    end
  end
end
