#!/usr/bin/env python3
"""Explores the model of protocol.py: every order of its steps and faults, for each setup.

    check.py                    the setups of the test: each fault alone, and pairs that broke earlier versions
    check.py --deep             larger budgets (long: some have over 100,000 states)
    check.py NAME ...           these setups
    check.py --rules            the rules that can be left out
    check.py --without RULE     the setup that shows what the rule is for, without it: there must be a violation

Exits with 1 when a state violates an invariant (a shortest way there is printed), or when from some state no way without
faults leads to an end.
"""
import sys
import time
from collections import deque

sys.dont_write_bytecode = True                          # no cache beside the sources
from protocol import DEAD, ENDS, RULES, Budget, Setup, Steps


# ---- The invariants

def quiet(g):
    return not g.queue and not g.late and all(k.step == 'idle' for k in g.workers) \
        and all(s.step in ('accepted', 'over') for s in g.callers)


def alive(g):
    """Copies that can still bring something forth."""
    r, at_work = g.record, {k.id for k in g.workers if k.step != 'idle'}
    can = sum(m.id not in at_work and (r is None or m.seq >= r.seq or r.state == 'B' and m.tag == r.issuer) for m in g.queue)
    return can + sum(k.step in ('put', 'put_same') for k in g.workers)


def violations(c, g):
    r = g.record
    if g.cancelled == 2 and not g.lost_data:
        yield 'called after a cancel was answered'
    if g.calls > 1 + g.resends and not g.lost_data:
        yield 'accepted by the provider once too often'
    if sum(k.step == 'call' for k in g.workers) > 1 and not g.lost_data:
        yield 'two calls at once'
    if alive(g) > c.copies:
        yield f'more than {c.copies} live copies'
    if r is not None and r.state == 'U' and not g.lost_data and not excused(c, g):
        yield 'parked as unknown though every call ended and no worker died'
    if quiet(g) and g.accepted:
        yield from ended_badly(g)


def excused(c, g):
    """An unknown outcome needs a worker that died, was slow, or got no answer from its provider; or a claim that ran unheard, of
    which another copy hears before the one that reports it."""
    spent = {name for name in Budget._fields if c.budget.get(name, 0) > getattr(g.budget, name)}
    second_copy = spent & {'dup', 'redelivery', 'lost', 'undeleted'} or c.callers + c.tries > 1
    return spent & {'crash', 'slow', 'outcomes', 'sqs', 'expiry'} or 'stall' in spent and second_copy or not c.in_order


def ended_badly(g):
    r = g.record
    forgotten = g.lost_data and (g.calls or g.letters)
    if r is None:
        if not g.calls and not g.letters and not g.cancelled:
            yield 'accepted, and lost without a trace'
    elif r.state in 'BC' and not forgotten and not g.letters:
        yield f'accepted, and stuck as {r.state} without a copy'
    elif r.state == 'S' and not g.calls:
        yield 'recorded as sent, never called'
    elif r.state == 'X' and not g.cancelled:
        yield 'accepted, and cancelled by nobody'
    elif r.state in DEAD and not g.letters:
        yield f'ended as {r.state}, and the payload is nowhere'


def left_an_end(g, h, label):
    """Ends are left for sent, by a redrive, and by lost data."""
    r, s = g.record, h.record
    return r is not None and r.state in ENDS and (s is None or s.state != r.state) and (s is None or s.state != 'S') \
        and not label.startswith(('redrive', 'Redis is', 'its record EXPIRES'))


# ---- The search

def canonical(g):
    """Ids only matter by being equal: they are numbered anew in an order of their own."""
    names = {0: 0}

    def name(x):
        return names.setdefault(x, len(names))

    def report(x):
        return x and (name(x[0]), x[1])

    def next_copy(x):
        return (x[0], name(x[1]), report(x[2])) if isinstance(x, tuple) else x

    def worker(k):
        return k._replace(id=name(k.id), tag=name(k.tag), nonce=name(k.nonce), report=report(k.report), x=next_copy(k.x))

    queue = sorted(g.queue, key=lambda m: (m.held, m.seq, m.old, m.report is not None, m.tag, m.id))
    workers = sorted(g.workers, key=lambda k: (k.step, k.seq, k.late, k.tag, k.id))
    callers = sorted(g.callers)
    r = g.record and g.record._replace(nonce=name(g.record.nonce), issuer=name(g.record.issuer))
    queue = tuple(m._replace(id=name(m.id), tag=name(m.tag), report=report(m.report)) for m in queue)
    workers = tuple(worker(k) for k in workers)
    callers = tuple(s._replace(tag=name(s.tag)) for s in callers)
    late = g.late
    if late and late[0] != 'reserve':
        late = (late[0], worker(late[1])) + tuple(name(x) if isinstance(x, int) else x for x in late[2:])
    snapshot = g.snapshot
    if snapshot and snapshot[0]:
        old = snapshot[0]
        snapshot = (old._replace(nonce=name(old.nonce), issuer=name(old.issuer)), snapshot[1])
    return g._replace(record=r, queue=queue, workers=workers, callers=callers, late=late, snapshot=snapshot, ids=len(names))


class Search:
    """Breadth first, so the way to a violation is a shortest one."""

    def __init__(self, name, setup, most):
        self.name, self.c, self.most = name, setup, most
        start = canonical(setup.start())
        self.came_from, self.waiting = {start: None}, deque([start])
        self.back, self.over = {}, []
        self.found, self.capped = None, False

    def run(self):
        began = time.monotonic()
        while self.waiting and not self.found and not self.capped:
            self.expand(self.waiting.popleft())
        took = time.monotonic() - began
        stuck = [] if self.found or self.capped else self.stuck()
        capped = f', stopped at {self.most}' if self.capped else ''
        print(f'{self.name}: {len(self.came_from)} states{capped}, {took:.1f} s')
        if self.found:
            g, what = self.found
            print(f'VIOLATION {what}')
            self.tell(g)
        elif stuck:
            print(f'VIOLATION no way to an end without faults from {len(stuck)} states')
            self.tell(min(stuck, key=lambda g: len(self.way(g))))
        sys.stdout.flush()
        return not self.found and not stuck

    def expand(self, g):
        what = next(violations(self.c, g), None)
        if what:
            self.found = (g, what)
            return
        if quiet(g) or g.record is not None and g.record.seq > self.c.seqs:
            self.over.append(g)
            if not quiet(g):
                return
        for label, h, fault in Steps(self.c, g).all():
            if self.c.per_seq and h.record and g.record and h.record.seq > g.record.seq:
                h = h._replace(budget=h.budget._replace(dup=self.c.budget['dup']))
            if left_an_end(g, h, label):
                self.found = (g, f'left its end state: {label}')
                return
            h = canonical(h)
            if not fault:
                self.back.setdefault(h, []).append(g)
            if h not in self.came_from:
                self.came_from[h] = (g, label)
                self.waiting.append(h)
        self.capped = len(self.came_from) > self.most

    def stuck(self):
        ends, todo = set(self.over), deque(self.over)
        while todo:
            for g in self.back.get(todo.popleft(), ()):
                if g not in ends:
                    ends.add(g)
                    todo.append(g)
        return [g for g in self.came_from if g not in ends]

    def way(self, g):
        labels = []
        while self.came_from[g]:
            g, label = self.came_from[g]
            labels.append(label)
        return labels[::-1]

    def tell(self, g):
        for n, label in enumerate(self.way(g), 1):
            print(f'  {n:2} {label}')
        print(f'     {g.record}')


# ---- The setups

SMALL = {
    'crash': Setup(crash=1),
    'crash-resend': Setup(crash=1, on_unknown='resend'),
    'dup': Setup(dup=1, missed=1),
    'lost': Setup(lost=1, missed=1),
    'outcome': Setup(outcomes=1),
    'outcome-resend': Setup(outcomes=1, on_unknown='resend'),
    'slow-redelivery': Setup(slow=1, redelivery=1),
    'slow-redelivery-resend': Setup(slow=1, redelivery=1, on_unknown='resend', seqs=3),
    'stall': Setup(stall=1),
    'stall-any-order': Setup(stall=1, outcomes=1, in_order=False, seqs=3),
    'stall-any-order-slow-cancel': Setup(stall=1, slow=1, cancel=1, in_order=False, workers=1, seqs=3),
    'sqs': Setup(sqs=1, outcomes=1, seqs=3),
    'undeleted': Setup(undeleted=1, missed=1),
    'again': Setup(tries=1, missed=1, seqs=3),
    'two-callers': Setup(callers=2, sqs=1, seqs=3),
    'cancel': Setup(cancel=1, dup=1, seqs=3),
    'unbooked': Setup(hold=1, tries=1, seqs=3),
    'unbooked-cancel': Setup(hold=1, cancel=1, seqs=3),
    'deadline': Setup(deadline=1, outcomes=1, seqs=3),
    'expiry': Setup(undeleted=1, expiry=1, seqs=3),
    'flush': Setup(flush=1, seqs=3),
    'calendar': Setup(calendar=1, tries=1, seqs=3),
    'rewind': Setup(rewind=1, workers=1, seqs=3),
    'redrive': Setup(redrive=1, outcomes=1, seqs=3),
    'hops': Setup(dup=1, per_seq=True, copies=2, seqs=3),
}
DEEP = {
    'crash-2-dup': Setup(crash=2, dup=1, seqs=6),
    'crash-2-resend': Setup(crash=2, on_unknown='resend', seqs=6),
    'crash-lost-redelivery': Setup(crash=1, lost=1, redelivery=1, seqs=6),
    'crash-outcome-dup': Setup(crash=1, outcomes=1, dup=1, seqs=5),
    'slow-redelivery-outcome-resend': Setup(slow=1, redelivery=1, outcomes=1, on_unknown='resend', seqs=5),
    'stall-crash': Setup(stall=1, crash=1, seqs=5),
    'stall-dup': Setup(stall=1, dup=1, seqs=5),
    'stall-outcome-resend': Setup(stall=1, outcomes=1, on_unknown='resend', seqs=5),
    'stall-any-order-dup': Setup(stall=1, dup=1, in_order=False, seqs=5),
    'sqs-outcome-crash': Setup(sqs=1, outcomes=1, crash=1, seqs=5),
    'again-crash-missed': Setup(tries=1, crash=1, missed=1, seqs=5),
    'two-callers-lost': Setup(callers=2, sqs=1, lost=1, seqs=5),
    'cancel-dup-crash': Setup(cancel=1, dup=1, crash=1, seqs=5),
    'cancel-again-lost': Setup(cancel=1, tries=1, lost=1, seqs=5),
    'missed-crash-dup': Setup(missed=1, crash=1, dup=1, seqs=5),
    'unbooked-again-crash': Setup(hold=1, tries=1, crash=1, seqs=5),
    'deadline-crash-outcome': Setup(deadline=1, crash=1, outcomes=1, seqs=5),
    'flush-dup': Setup(flush=1, dup=1, seqs=5),
    'flush-again': Setup(flush=1, tries=1, seqs=5),
    'rewind-crash': Setup(rewind=1, crash=1, seqs=4),
    'calendar-crash-dup': Setup(calendar=1, crash=1, dup=1, seqs=5),
    'redrive-crash-outcome': Setup(redrive=1, crash=1, outcomes=1, seqs=5),
    'redrive-dup': Setup(redrive=1, outcomes=1, dup=1, seqs=5),
    'hops-6': Setup(dup=1, per_seq=True, copies=2, seqs=6),
    'three-workers': Setup(workers=3, dup=2, seqs=3),
}
# What each rule is for: the setup in which it is missed.
MISSED_IN = {
    'guard': dict(tries=1, missed=1),
    'nonce': dict(lost=1),
    'late': dict(stall=1, cancel=1, in_order=False),
    'fresh': dict(stall=1, slow=1, cancel=1, in_order=False),
    'fence': dict(slow=1, redelivery=1, on_unknown='resend'),
    'holder': dict(slow=1, redelivery=1, on_unknown='resend', max_attempts=3),
    'kept': dict(callers=2, sqs=1),
    'told': dict(outcomes=1, crash=1),
    'issuer': dict(dup=1, per_seq=True, copies=2),
    'report': dict(stall=1),
    'tombstone': dict(hold=1, cancel=1),
    'old': dict(undeleted=1, expiry=1),
}


def main(arguments):
    most = 3_000_000
    if arguments == ['--rules']:
        print('\n'.join(RULES))
        return 0
    if arguments[:1] == ['--without']:
        rule = arguments[1]
        setups = {f'without {rule} ({RULES[rule]})': Setup(without=rule, **MISSED_IN[rule])}
    elif arguments == ['--deep']:
        setups = DEEP
    else:
        setups = {name: {**SMALL, **DEEP}[name] for name in arguments or SMALL}
    # all of them, also behind one that fails
    good = [Search(name, setup, most).run() for name, setup in setups.items()]
    return 0 if all(good) else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
