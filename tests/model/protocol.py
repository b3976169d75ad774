"""The protocol as built, as a model of one send: callers, its record in Redis, its copies on SQS, workers, a redrive, a
cancel, and every fault that a setup has a budget for. check.py explores it.

Functions are named after those of lua/src/scripts, worker/src/message.rs and scheduler/src/scheduler.rs; a verdict's row here
is its row there.

Untimed: a slot comes, a lease ends, a message shows up whenever that is possible; only where it needs a slow worker or a
late delivery it is a fault. The calendar is left out: a booking is far, near, due or missed. So are digests, the seq of
65,535, and a second send.
"""
from collections import namedtuple

# The record. state: B booked, C claimed, S sent, X cancelled, F failed, E expired, U unknown; slot: FAR .. MISSED;
# nonce and lease while claimed; issuer: the tag that raised seq or was told to dead-letter, 0 the scheduler.
Record = namedtuple('Record', 'state seq slot nonce lease issuer attempts epoch')
# A message on SQS. report: what Redis was not told, (nonce, outcome); held: in flight; old: its slot is longer ago than
# records are kept.
Message = namedtuple('Message', 'id seq tag report held old')
# A worker with a delivery. step: idle, report, ask, wait, send, call, settle, put, put_same, dead, ack; late: the lease
# that it knows of has ended; x: the outcome to settle, or the next copy (seq, tag, report).
Worker = namedtuple('Worker', 'step id seq tag report old nonce late x')
# A caller. step: reserve, enqueue, accepted, over.
Caller = namedtuple('Caller', 'step tries seq tag redrive')
# What may still go wrong.
Budget = namedtuple('Budget', 'crash dup redelivery lost stall sqs undeleted missed outcomes flush calendar rewind cancel'
                    ' slow hold deadline expiry redrive')
# late: a call that Redis may still run, whose caller has given up. accepted: some caller was told so. cancelled: 1 the
# cancel was answered so. calls: times the provider accepted. letters: on the dead-letter queue. resends: second sends
# that the policy or a redrive explains. lost_data: Redis forgot something.
State = namedtuple('State', 'record epoch policy snapshot queue workers callers late accepted cancelled calls letters'
                   ' resends lost_data deadline ids budget')

FAR, NEAR, DUE, MISSED = range(4)
ENDS, DEAD = 'SXFEU', 'FEU'
IDLE = Worker('idle', 0, 0, 0, None, 0, 0, 0, None)

RULES = {
    'guard': 'reserve books again only what is booked',
    'nonce': 'a claim is known by the delivery that made it',
    'late': 'a question of a claim that stands changes nothing: it may be late',
    'fresh': 'who gave a claim back asks with another nonce',
    'fence': 'no call begins or runs outside its lease',
    'holder': 'an outcome but sent counts only while its nonce holds the record',
    'kept': 'a booking whose SendMessage failed is kept',
    'told': 'the copy that was told to dead-letter hears it again',
    'issuer': 'a stale copy is answered only if it raised seq',
    'report': 'what Redis was not told travels on with the copy',
    'tombstone': 'cancelling what is not known is remembered',
    'old': 'a copy older than the records is parked',
}


class Setup:
    """on_unknown, max_attempts: of the policy; tries: how often each caller schedules again; in_order: what a stalled Redis
    still holds runs before what is asked later; per_seq: the budget of duplicates is for each seq anew; copies: the most
    that may be alive; seqs: states beyond are not followed."""

    def __init__(self, on_unknown='park', max_attempts=2, callers=1, tries=0, workers=2, seqs=4, copies=6, in_order=True,
                 per_seq=False, without=None, **budget):
        self.on_unknown, self.max_attempts, self.callers, self.tries = on_unknown, max_attempts, callers, tries
        self.workers, self.seqs, self.copies, self.in_order = workers, seqs, copies, in_order
        self.per_seq, self.budget = per_seq, budget
        self.rules = set(RULES) - {without}

    def start(self):
        budget = Budget(**{name: self.budget.get(name, 0) for name in Budget._fields})
        callers = (Caller('reserve', self.tries, 0, 0, 0),) * self.callers
        return State(None, 0, 1, None, (), (IDLE,) * self.workers, callers, None, 0, 0, 0, 0, 0, 0, 0, 1, budget)


def less(budget, name):
    return budget._replace(**{name: getattr(budget, name) - 1})


# ---- claim.lua, claim_general.lua: each gives [(verdict, state, record's seq)]

def claim(c, g, copy):
    r = g.record
    if r is None:
        return missing(c, g, copy)
    if r.state in ENDS:
        return [ended(c, g, copy)]
    if r.state == 'C':
        return claimed(c, g, copy)
    return booked(c, g, copy)


def end_as(g, copy, state):
    r = g.record or Record('B', copy.seq, FAR, 0, 0, 0, 0, g.epoch)
    return [('dead', g._replace(record=r._replace(state=state, nonce=0, lease=0, issuer=copy.tag)), r.seq)]


def rebook(g, copy, seq=None, near=False):
    r = g.record or Record('B', copy.seq, FAR, 0, 0, 0, 0, g.epoch)
    if g.deadline:
        return end_as(g, copy, 'E')
    r = r._replace(state='B', nonce=0, lease=0, epoch=g.epoch)
    seq = seq or r.seq + 1
    found = [('rebooked', g._replace(record=r._replace(seq=seq, slot=FAR, issuer=copy.tag)), seq)]
    if near:                                            # it waits for it: the copy keeps its seq
        found.append(('wait', g._replace(record=r._replace(slot=NEAR)), r.seq))
    return found


def ended(c, g, copy):
    r = g.record
    told = r.state in DEAD and r.issuer == copy.tag and 'told' in c.rules
    return ('dead' if told else 'done', g, r.seq)


def claimed(c, g, copy):
    r = g.record
    if r.nonce == copy.nonce and 'nonce' in c.rules:
        # its reply was lost, or it is asked late, while the call is made; what comes too late its worker gives back
        anew = [] if 'late' in c.rules or not g.policy else booked(c, unclaim(g, copy, MISSED), copy)
        return [('send', g, r.seq)] + anew
    if copy.seq < r.seq:
        return [('done', g, r.seq)]
    if r.lease:
        return [('busy', g, r.seq)]
    if not g.policy:
        return [('hold', g, copy.seq)]
    if c.on_unknown == 'park' or r.attempts >= c.max_attempts:
        return end_as(g, copy, 'U')
    return rebook(g._replace(resends=g.resends + 1), copy)


def unclaim(g, copy, slot):
    """No call was made: it is booked again as it was, held by this copy; MISSED may still be in time."""
    r = g.record
    return g._replace(record=r._replace(state='B', slot=slot, nonce=0, lease=0, issuer=copy.tag, attempts=max(0, r.attempts - 1)))


def missing(c, g, copy):
    if not g.policy:
        return [('hold', g, copy.seq)]
    if g.deadline:
        return end_as(g, copy, 'E')
    if copy.old and 'old' in c.rules:
        return end_as(g, copy, 'U')
    return rebook(g, copy)


def booked(c, g, copy):
    r = g.record
    if copy.seq < r.seq:
        if 'issuer' in c.rules and r.issuer not in (copy.tag, 0):
            return [('done', g, r.seq)]
        return [('reissue' if g.policy else 'hold', g, r.seq)]
    if g.deadline:
        return end_as(g, copy, 'E')
    if not g.policy:
        return [('hold', g, copy.seq)]
    if r.epoch != g.epoch or copy.seq > r.seq:
        return rebook(g, copy, max(copy.seq, r.seq) + 1)
    if r.slot == FAR:
        return [('hop', g._replace(record=r._replace(seq=r.seq + 1, issuer=copy.tag)), r.seq + 1)]
    if r.slot == NEAR:
        return [('wait', g, r.seq)]
    moved = rebook(g, copy, near=True) if r.slot == MISSED else []
    taken = r._replace(state='C', nonce=copy.nonce, lease=1, issuer=0, attempts=r.attempts + 1)
    return moved + [('send', g._replace(record=taken), r.seq)]


# ---- settle.lua, settle_general.lua: (action, state, record's seq)

def settle(c, g, copy, nonce, outcome):
    r = g.record
    if outcome == 'sent':
        r = r or Record('B', copy.seq, MISSED, 0, 0, 0, 0, g.epoch)
        return ('acknowledge', g._replace(record=r._replace(state='S', nonce=0, lease=0, issuer=0)), r.seq)
    if r is None and g.policy and (outcome == 'rejected' or outcome == 'unknown' and c.on_unknown == 'park'):
        return end_as(g, copy, 'F' if outcome == 'rejected' else 'U')[0]
    if r is None or r.state != 'C' or r.nonce != nonce and 'holder' in c.rules:
        return not_mine(c, g, copy)
    if outcome == 'rejected':
        return end_as(g, copy, 'F')[0]
    if not g.policy:
        return ('again', g, r.seq)
    if outcome == 'unknown' and c.on_unknown == 'park':
        return end_as(g, copy, 'U')[0]
    if outcome == 'not_started':
        return ('again', unclaim(g, copy, r.slot), r.seq)
    if outcome == 'throttled':                          # nothing was submitted
        r = r._replace(attempts=max(0, r.attempts - 1))
        g = g._replace(record=r)
    if r.attempts >= c.max_attempts:
        return end_as(g, copy, 'U' if outcome == 'unknown' else 'F')[0]
    if outcome == 'unknown':
        g = g._replace(resends=g.resends + 1)
    verdict, g, seq = rebook(g, copy)[0]
    return (verdict if verdict == 'dead' else 'put_back', g, seq)


def not_mine(c, g, copy):
    r = g.record
    if r is None:
        return ('again', g, copy.seq)
    if r.state in ENDS:
        told = r.state in DEAD and r.issuer == copy.tag and 'told' in c.rules
        return ('dead' if told else 'acknowledge', g, r.seq)
    if r.state == 'B' and r.issuer == copy.tag and r.seq > copy.seq and g.policy and r.epoch == g.epoch:
        return ('put_back', g, r.seq)                   # this report, once more
    return ('again', g, copy.seq)


# ---- reserve.lua, reserve_general.lua: (answer, state, seq); booked answers are put on SQS by the caller

def reserve(c, g, redrive):
    r = g.record
    if not g.policy:
        return ('refused', g, 0)
    if r is None:
        return ('refused', g, 0) if g.deadline else ('booked', g._replace(record=Record('B', 1, FAR, 0, 0, 0, 0, g.epoch)), 1)
    if redrive and r.state in DEAD:
        again = g.resends + (r.state == 'U')            # an explicit second send
        return book(g._replace(resends=again), r, attempts=0)
    if r.state in ENDS or r.state == 'C' and 'guard' in c.rules:
        return ('refused', g, 0)
    if r.state == 'B' and r.epoch == g.epoch and r.slot != MISSED:
        return ('booked', g, r.seq)                     # the booking that stands
    return book(g, r, attempts=r.attempts)


def book(g, r, attempts):
    if g.deadline:
        return ('refused', g, 0)
    r = Record('B', r.seq + 1, FAR, 0, 0, 0, attempts, g.epoch)
    return ('booked', g._replace(record=r), r.seq)


# ---- cancel.lua, cancel_general.lua

def cancel(c, g):
    r = g.record
    if r is None:
        if 'tombstone' in c.rules:
            g = g._replace(record=Record('X', 0, FAR, 0, 0, 0, 0, g.epoch))
        return g._replace(cancelled=1)
    if r.state == 'B':
        return g._replace(record=r._replace(state='X', issuer=0), cancelled=1)
    return g


# ---- The steps

class Steps:
    """All that can happen next: (label, state, whether it is a fault)."""

    def __init__(self, setup, state):
        self.c, self.g, self.found = setup, state, []
        # while a stalled Redis holds a call, what is asked later waits behind it
        self.redis = not (setup.in_order and state.late)

    def add(self, label, state, fault=None):
        if fault:
            state = state._replace(budget=less(state.budget, fault))
        self.found.append((label, state, bool(fault)))

    def left(self, fault):
        return getattr(self.g.budget, fault) > 0

    def all(self):
        self.clock()
        self.sqs()
        seen = set()
        for i, k in enumerate(self.g.workers):
            if k.step != 'idle' and k not in seen:      # two alike do the same
                seen.add(k)
                self.worker(i, k)
        seen = set()
        for i, s in enumerate(self.g.callers):
            if s not in seen:
                seen.add(s)
                self.caller(i, s)
        self.people()
        self.redis_itself()
        return self.found

    # -- state changes

    def with_worker(self, g, i, k):
        return g._replace(workers=g.workers[:i] + (k,) + g.workers[i + 1:])

    def with_caller(self, g, i, s):
        return g._replace(callers=g.callers[:i] + (s,) + g.callers[i + 1:])

    def with_message(self, j, message, g=None):
        g = g or self.g
        return g._replace(queue=g.queue[:j] + (message,) + g.queue[j + 1:])

    def enqueued(self, g, seq, tag, report=None, old=0):
        message = Message(g.ids, seq, tag, report, 0, old)
        return g._replace(queue=g.queue + (message,), ids=g.ids + 1)

    # -- time

    def clock(self):
        g, r = self.g, self.g.record
        if r is not None and r.state == 'B' and r.slot < DUE:
            self.add('its slot comes nearer', g._replace(record=r._replace(slot=r.slot + 1)))
        if r is not None and r.state == 'B' and r.slot == DUE and self.left('missed'):
            self.add('its slot is MISSED', g._replace(record=r._replace(slot=MISSED)), 'missed')
        if r is not None and r.state == 'C' and r.lease:
            self.lease(r)
        if self.left('deadline'):
            self.add('its DEADLINE passes', g._replace(deadline=1), 'deadline')
        if self.left('expiry') and r is not None and r.state in ENDS:
            queue = tuple(m._replace(old=1) for m in g.queue)
            workers = tuple(k._replace(old=1) if k.step != 'idle' else k for k in g.workers)
            self.add('its record EXPIRES', g._replace(record=None, queue=queue, workers=workers), 'expiry')

    def lease(self, r):
        g = self.g
        holders = [k for k in g.workers if k.step != 'idle' and k.nonce == r.nonce]
        ended = g._replace(record=r._replace(lease=0), workers=tuple(
            k._replace(late=1) if k in holders else k for k in g.workers))
        if not holders:
            self.add('the lease of a dead worker ends', ended)
        elif self.left('slow') and not ('fence' in self.c.rules and any(k.step == 'call' for k in holders)):
            self.add('the lease of a SLOW worker ends', ended, 'slow')

    # -- SQS

    def sqs(self):
        g = self.g
        for j, m in enumerate(g.queue):
            at_work = any(k.id == m.id and k.step != 'idle' for k in g.workers)
            if m.held and not at_work:
                self.add(f'visibility timeout of m{m.id}', self.with_message(j, m._replace(held=0)))
            if m.held and at_work and self.left('redelivery'):
                self.add(f'REDELIVERY of m{m.id}', self.with_message(j, m._replace(held=0)), 'redelivery')
            idle = [i for i, k in enumerate(g.workers) if k.step == 'idle']
            if not m.held and idle:
                k = Worker('report' if m.report else 'ask', m.id, m.seq, m.tag, m.report, m.old, g.ids, 0, None)
                got = self.with_worker(g, idle[0], k)._replace(ids=g.ids + 1)
                self.add(f'm{m.id} arrives (seq {m.seq})', self.with_message(j, m._replace(held=1), got))
                if self.left('dup'):
                    self.add(f'm{m.id} arrives (seq {m.seq}) and STAYS', got, 'dup')

    # -- worker/src/message.rs

    def worker(self, i, k):
        if self.left('crash'):
            self.add(f'worker CRASHES ({k.step})', self.with_worker(self.g, i, IDLE), 'crash')
        getattr(self, k.step)(i, k)

    def lost_or_stalled(self, i, k, label, ran, asked):
        """A call of Redis without an answer: asked again, or given up while it may still run."""
        if self.left('lost'):
            self.add(f'{label}, REPLY LOST', self.with_worker(ran, i, k), 'lost')
        if self.left('stall') and not self.g.late:
            report = k.report or (k.nonce, 'not_started' if asked[0] == 'claim' else k.x)
            held = self.copy(k, 'put_same', (k.seq, k.tag, report if 'report' in self.c.rules else None))
            self.add(f'{asked[0]} STALLS', self.with_worker(self.g, i, held)._replace(late=asked), 'stall')
            if not self.c.in_order:                     # in order it is as good as a lost reply
                self.add(f'{asked[0]} STALLS, asked once more', self.with_worker(self.g, i, k)._replace(late=asked), 'stall')

    def copy(self, k, step, x):
        return k._replace(step=step, x=x)

    def report(self, i, k):
        if not self.redis:
            return
        nonce, outcome = k.report
        action, g, seq = settle(self.c, self.g, k, nonce, outcome)
        label = f'reports {outcome} of an earlier delivery: {action}'
        if action == 'again':
            after = self.with_worker(g, i, k._replace(step='ask', report=None))
        else:
            after = self.acted(g, i, k, action, seq)
        self.add(label, after)
        self.lost_or_stalled(i, k, label, g, ('settle', k, nonce, outcome))

    def ask(self, i, k):
        if not self.redis:
            return
        for verdict, g, seq in claim(self.c, self.g, k):
            if verdict == 'wait' and k.step == 'wait' and g == self.g:
                continue
            label = f'claim: {verdict}'
            if verdict in ('wait', 'send'):
                g2, k2 = g, k._replace(step=verdict, late=0)
            elif verdict in ('hop', 'rebooked', 'reissue'):
                g2, k2 = g._replace(ids=g.ids + 1), self.copy(k, 'put', (seq, g.ids, None))._replace(old=0)
            elif verdict in ('busy', 'hold'):
                g2, k2 = g, self.copy(k, 'put_same', (k.seq, k.tag, None))
            else:
                g2, k2 = g, k._replace(step={'done': 'ack', 'dead': 'dead'}[verdict])
            self.add(label, self.with_worker(g2, i, k2))
            self.lost_or_stalled(i, k, label, g, ('claim', k))

    def wait(self, i, k):
        self.ask(i, k)
        if self.left('slow'):
            held = self.copy(k, 'put_same', (k.seq, k.tag, None))
            self.add('no time left to wait', self.with_worker(self.g, i, held), 'slow')

    def send(self, i, k):
        """The fence: a worker that knows that its lease has ended does not call."""
        g, held = self.g, self.with_worker(self.g, i, k._replace(step='settle', x='not_started'))
        if k.late and 'fence' in self.c.rules:
            self.add('too late to call', held)
            return
        if self.left('slow'):
            self.add('no time left to call', held, 'slow')
        if g.cancelled:
            g = g._replace(cancelled=2)
        self.add('the call begins', self.with_worker(g, i, k._replace(step='call')))

    def call(self, i, k):
        g = self.g
        taken = g._replace(calls=min(3, g.calls + 1))
        self.add('the provider accepts', self.with_worker(taken, i, k._replace(step='settle', x='sent')))
        if self.left('outcomes'):
            for outcome in ('throttled', 'unavailable', 'rejected', 'unknown'):
                self.add(f'the call ends {outcome.upper()}', self.with_worker(g, i, k._replace(step='settle', x=outcome)), 'outcomes')
            self.add('the provider accepts, the call ends UNKNOWN',
                     self.with_worker(taken, i, k._replace(step='settle', x='unknown')), 'outcomes')

    def settle(self, i, k):
        if not self.redis:
            return
        action, g, seq = settle(self.c, self.g, k, k.nonce, k.x)
        label = f'settle {k.x}: {action}'
        self.add(label, self.acted(g, i, k, action, seq))
        if action == 'again' and k.x == 'not_started':
            nonce, g2 = (g.ids, g._replace(ids=g.ids + 1)) if 'fresh' in self.c.rules else (k.nonce, g)
            self.add(f'{label}, and asks', self.with_worker(g2, i, k._replace(step='ask', nonce=nonce, late=0, x=None)))
        self.lost_or_stalled(i, k, label, g, ('settle', k, k.nonce, k.x))

    def acted(self, g, i, k, action, seq):
        if action == 'put_back':
            return self.with_worker(g._replace(ids=g.ids + 1), i, self.copy(k, 'put', (seq, g.ids, None))._replace(old=0))
        if action == 'again':
            return self.with_worker(g, i, self.copy(k, 'put_same', (k.seq, k.tag, None)))
        return self.with_worker(g, i, k._replace(step={'acknowledge': 'ack', 'dead': 'dead'}[action], x=None))

    def put(self, i, k):
        """SendMessage of the next copy; one that was sent twice is the same body, so the same tag."""
        seq, tag, report = k.x
        g = self.enqueued(self.g, seq, tag, report, k.old)
        label = f'{k.step} seq {seq}'
        self.add(label, self.with_worker(g, i, k._replace(step='ack', x=None)))
        if self.left('lost'):
            self.add(f'{label}, REPLY LOST', self.with_worker(g, i, k), 'lost')
        if self.left('sqs'):                            # the message is left for its visibility timeout
            self.add(f'{label} FAILS', self.with_worker(self.g, i, IDLE), 'sqs')
            self.add(f'{label} FAILS, but is on the queue', self.with_worker(g, i, IDLE), 'sqs')

    def put_same(self, i, k):
        self.put(i, k)

    def dead(self, i, k):
        g = self.g._replace(letters=min(2, self.g.letters + 1))
        self.add('dead-lettered', self.with_worker(g, i, k._replace(step='ack')))
        if self.left('sqs'):
            self.add('dead letter FAILS', self.with_worker(self.g, i, IDLE), 'sqs')

    def ack(self, i, k):
        g = self.with_worker(self.g, i, IDLE)
        self.add(f'm{k.id} deleted', g._replace(queue=tuple(m for m in g.queue if m.id != k.id)))
        if self.left('undeleted'):
            self.add(f'm{k.id} NOT DELETED', g, 'undeleted')

    # -- scheduler/src/scheduler.rs

    def caller(self, i, s):
        if s.step == 'reserve' and self.redis:
            answer, g, seq = reserve(self.c, self.g, s.redrive)
            label = f'{"redrive" if s.redrive else "reserve"}: {answer} seq {seq}'
            if answer == 'booked':
                after = self.with_caller(g._replace(ids=g.ids + 1), i, s._replace(step='enqueue', seq=seq, tag=g.ids))
            else:
                after = self.with_caller(g, i, s._replace(step='over'))
            self.add(label, after)
            if self.left('lost'):
                self.add(f'{label}, REPLY LOST', self.with_caller(g, i, s), 'lost')
        if s.step == 'reserve' and self.left('hold') and not s.redrive:
            # Redis is away: accepted unbooked; what was asked may still run
            g = self.enqueued(self.g._replace(accepted=1, ids=self.g.ids + 1), 0, self.g.ids)
            g = self.with_caller(g, i, s._replace(step='accepted'))
            self.add('Redis away: on SQS UNBOOKED', g, 'hold')
            if not g.late:
                self.add('reserve STALLS: on SQS UNBOOKED', g._replace(late=('reserve',)), 'hold')
        if s.step == 'enqueue':
            self.enqueue(i, s)
        if s.step == 'accepted' and s.tries:
            self.again(i, s, 'the caller schedules again', self.g)

    def again(self, i, s, label, g, fault=None):
        self.add(label, self.with_caller(g, i, s._replace(step='reserve', tries=s.tries - 1, seq=0, tag=0)), fault)

    def enqueue(self, i, s):
        queued = self.enqueued(self.g, s.seq, s.tag)._replace(accepted=1)
        if s.redrive:
            queued = queued._replace(letters=0)         # deleted, now that it is on its way
        self.add(f'enqueue seq {s.seq}: accepted', self.with_caller(queued, i, s._replace(step='accepted', seq=0, tag=0)))
        over = s._replace(step='over', seq=0, tag=0)
        unheard = queued._replace(accepted=self.g.accepted, letters=self.g.letters)
        failed = self.g
        if 'kept' not in self.c.rules and failed.record and failed.record.state == 'B':
            failed = failed._replace(record=failed.record._replace(state='X', issuer=0))
        for fault, label, g in (('lost', 'enqueue REPLY LOST', unheard), ('sqs', 'enqueue FAILS', failed),
                                ('crash', 'the caller CRASHES before it enqueues', self.g)):
            if self.left(fault):
                self.add(label, self.with_caller(g, i, over), fault)
                if s.tries:
                    self.again(i, s, f'{label}, and schedules again', g, fault)

    # -- people: a cancel, a redrive, the policy set again

    def people(self):
        g = self.g
        if self.left('cancel') and self.redis:
            self.add('cancel', cancel(self.c, g)._replace(budget=less(g.budget, 'cancel')))
        if self.left('redrive') and g.letters:
            redrive = Caller('reserve', 0, 0, 0, 1)
            self.add('a redrive begins', g._replace(callers=g.callers + (redrive,), budget=less(g.budget, 'redrive')))
        if not g.policy:
            self.add('the policy is set again', g._replace(policy=1))

    # -- Redis

    def redis_itself(self):
        g = self.g
        if g.late:
            self.add('what stalled never runs', g._replace(late=None))
            for ran in self.run_late(g.late):
                self.add(f'the {g.late[0]} that stalled runs', ran._replace(late=None))
        if self.left('flush'):
            self.add('Redis is FLUSHED', g._replace(record=None, policy=0, epoch=g.epoch + 1, lost_data=1), 'flush')
        if self.left('calendar'):
            self.add('the CALENDAR is lost', g._replace(epoch=g.epoch + 1), 'calendar')
        if self.left('rewind'):
            if g.snapshot is None:
                self.add('(a snapshot)', g._replace(snapshot=(g.record, g.epoch)))
            elif g.snapshot != (g.record, g.epoch):
                record, epoch = g.snapshot
                self.add('Redis is REWOUND', g._replace(record=record, epoch=epoch, lost_data=1), 'rewind')

    def run_late(self, late):
        if late[0] == 'claim':
            return [g for _, g, _ in claim(self.c, self.g, late[1])]
        if late[0] == 'settle':
            _, copy, nonce, outcome = late
            return [settle(self.c, self.g, copy, nonce, outcome)[1]]
        return [reserve(self.c, self.g, 0)[1]]
