/* wake_up.pml: who is rung, and who looks, when a packet comes: the doorbells, claims and lease of
 * src/seat/progress.c and src/path/shm, for spin.
 *
 * Two senders put packets into their rings and ring if the bell is armed and they have not answered
 * this arm yet. On the other side an engine's thread, threads that wait for events, one that polls
 * for a while, arms its CQ and sleeps, and one that opens a link receive what has come. A tick is
 * progress only while nobody sleeps: packets of the second sender complete nothing, as the
 * acknowledgement of an unsignalled request, and what comes behind one must not wait.
 * Checked: when nothing can move any more every packet has been received, whatever it was, and
 * whoever is to hear of one has heard. Each access to what is shared is a step of its own, but
 * those that the code makes atomic. The model is sequentially consistent: the two fences
 * (link_ring_bell, shm_bell_arm) are what makes that true of the code.
 *
 * here                     in the code
 * send                     ring_push, link_ring_bell
 * arm                      shm_bell_arm
 * arm_sleeper              progress_arm_for_sleeper
 * receive(TRY..)           ibt_poll, shm_poll without `must`
 * receive(MUST..)          ibt_look, shm_poll with `must`
 * engine                   progress_main, progress_pass, progress_linger (passes), progress_prepare_sleep
 * waiter                   progress_wait_fd, progress_wait_round
 * sleeper                  progress_sleep_begin to progress_sleep_end: one of them has the claim
 * poller                   progress_drive, cq_arm, progress_armed; it ends with no look of its own.
 *                          So few passes behind an arm are a consumer's last: PROGRESS_LAST_POLLS
 *                          and the passes that a thread makes beyond them are not in the model
 * opener                   link_publish
 *
 * Who takes part, by -D: FIRST=n, SECOND=n packets of the two senders, WAITERS=0..2 (each may be
 * called away by a signal, unless QUIET), SLEEPERS=0..2 (likewise), POLLS=n (0: nobody polls), OPENER (the second sender's link is opened
 * while he sends), ONE_LINK (the senders are threads of one process).
 * Mistakes, by -D, each of which must lose a wake-up:
 *   TRY_LOOK      the last look before a sleep gives up if another thread is receiving
 *   ENGINE_ARMS   the engine's thread looks for waiters first and then arms for itself
 *   TORN_ARM      an arm reads the word and writes it in two steps
 *   LEAVE_ONCE    who stops waiting arms by the count of waiters that it saw before
 *   LEAVE_SHORT   who stops waiting looks once, and for so many packets only
 *   NO_LOOK       no look between arm and sleep
 *   TICK_EARLY    a sleeper asks whether the engine's thread ticks before it gives up its claim
 *   RING_FIRST    the sender looks at the bell before the packet is in the ring (a fence missing)
 *   OPEN_SILENT   nobody looks after a link has been opened
 *   TICK_DEAF     for a tick the engine's thread sleeps without an arm, whoever sleeps
 *   TICK_BLIND    it arms then, and does not look
 *   TICK_TRUSTS   it leaves that to a thread with a claim, if there is one
 *   COUNT_LATE    a consumer counts as a sleeper once it has armed the doorbell
 *   ARM_BLIND     a consumer does not look behind its arm, while the engine's thread ticks
 *   LEAVE_ALONE   a sleeper that gives up its claim counts sleeping threads, not armed CQs
 */
#ifndef FIRST
#define FIRST 2
#endif
#ifndef SECOND
#define SECOND 1
#endif
#ifndef WAITERS
#define WAITERS 1
#endif
#ifndef SLEEPERS
#define SLEEPERS 0
#endif
#ifndef POLLS
#define POLLS 0
#endif
/* Budgets: those who are in a hurry, and the others. */
#define SHORT 1
#define LONG 2

#ifdef ONE_LINK
#define LINK(s) 0
#else
#define LINK(s) s
#endif

byte waiting[2];          /* packets in each ring */
byte word;                /* the bell's: which arm it is, 0 before the first ... */
bool second;              /* ... and which bell */
byte rung[2];             /* shm_link.rung of each sender: the arm that was answered last */
byte read_word[2];        /* what a sender has just read; 0: nothing that matters */
bool bell[2];             /* the eventfds: readable */
bool kicked;
byte claims;
byte threads;             /* between progress_sleep_begin and progress_sleep_end */
byte sleepers;            /* threads, and CQs that are armed */
bool cq_armed;            /* the poller's */
bool ticking;             /* the engine's thread polls at every tick */
bool driven;              /* `drives` is not what the engine's thread saw last */
bool receiving;           /* poll_lock */
bool linked[2];           /* in shm.links */
bool heard;               /* a packet came whose completion a waiter is to hear of */

/* ---- senders ---- */

/* Arms are only compared: one that nobody remembers may come again as the next, and what equals
 * nothing is as good as none. */
#define REMEMBERED(a) (read_word[0] == a || read_word[1] == a)
#define FORGET(l) \
	if \
	:: rung[l] != word && !REMEMBERED(rung[l]) -> rung[l] = 0 \
	:: else -> skip \
	fi

#define LOOK_AT_BELL read_word[s] = word; which = second
#define DONE_WITH_BELL read_word[s] = 0; which = false; FORGET(LINK(s))

/* `rung` is the sender's own, so looking at it is no step, unless they are threads of one process. */
proctype sender(byte s; byte left)
{
	bool which;

	do
	:: left > 0 ->
#ifdef RING_FIRST
		atomic { left--; LOOK_AT_BELL };
		waiting[LINK(s)]++;
		atomic {
#else
		atomic { left--; waiting[LINK(s)]++ };
		atomic {
			LOOK_AT_BELL;
#endif
#ifdef ONE_LINK
		};
		atomic {
#endif
			if
			:: read_word[s] == 0 || read_word[s] == rung[LINK(s)] ->
				DONE_WITH_BELL;
				goto next
			:: else -> skip
			fi;
#ifdef ONE_LINK
		};
		atomic {
#endif
			rung[LINK(s)] = read_word[s]
		};
		atomic { bell[which] = true; DONE_WITH_BELL };
next:		skip
	:: else -> break
	od
}

/* ---- receiving ---- */

#define MUST true
#define TRY false

/* n: has any been taken? Who is in a hurry takes one at most. */
inline take(l, budget)
{
	d_step {
		if
		:: linked[l] && waiting[l] > 0 && (budget == LONG || n == 0) ->
			n = 1;
			waiting[l] = (budget == LONG -> 0 : waiting[l] - 1);
			heard = heard || l == 0;
			if
			:: l == 0 && cq_armed -> /* the event: cq_note_arm */
				cq_armed = false;
				sleepers--
			:: else -> skip
			fi
		:: else -> skip
		fi
	}
}

inline receive(must, budget)
{
	if
	:: atomic { !receiving -> receiving = true };
		take(0, budget);
		atomic { take(1, budget); receiving = false }
	:: !(must) && receiving -> skip
	fi
}

#ifdef TRY_LOOK
#define LOOK TRY
#else
#define LOOK MUST
#endif

inline look(budget)
{
#ifdef NO_LOOK
	skip
#else
	receive(LOOK, budget)
#endif
}

inline arm(which)
{
#ifdef TORN_ARM
	mine = word + 1;
	atomic { word = mine; mine = 0; second = which }
#else
	d_step {
		word = 0;
		FORGET(0);
		FORGET(1);
		word = (!REMEMBERED(1) -> 1 : (!REMEMBERED(2) -> 2 : 3));
		second = which
	}
#endif
}

inline arm_sleeper()
{
	do
	:: w = (claims != 0);
		arm(w);
		if
		:: w == (claims != 0) -> w = false; break
		:: else -> skip
		fi
	od
}

/* ---- who receives ---- */

/* What it has taken is not kept. */
#define IF_ANY_GO(label) \
	if \
	:: n != 0 -> n = 0; goto label \
	:: else -> skip \
	fi

#ifdef TICK_TRUSTS
#define TICK_ARMS (sleepers != 0 && claims == 0)
#else
#define TICK_ARMS (sleepers != 0 || claims != 0)
#endif

proctype engine()
{
	bit n;
	byte mine;
	bool w;

pass:	receive(TRY, LONG);
	IF_ANY_GO(pass);
	if
	:: atomic { driven -> driven = false };
		ticking = true; /* sleeps for one tick at most */
#ifndef TICK_DEAF
		if
		:: TICK_ARMS ->
			arm_sleeper();
#ifndef TICK_BLIND
			look(LONG);
			IF_ANY_GO(pass)
#endif
		:: else -> skip
		fi;
#endif
end_ticks:	bell[0] || kicked || (claims == 0 && sleepers == 0);
		goto wake
	:: else -> skip
	fi;
	ticking = false;
#ifdef ENGINE_ARMS
	if
	:: claims != 0 -> skip
	:: else -> arm(false);
		look(LONG);
		IF_ANY_GO(pass)
	fi;
#else
	arm_sleeper();
	look(LONG);
	IF_ANY_GO(pass);
#endif
end_asleep:
	bell[0] || kicked;
wake:	bell[0] = false;
	kicked = false;
	goto pass
}

proctype waiter()
{
	bit n;
	byte mine;
	bool w, leaves;

	if
	:: leaves = false
#ifndef QUIET
	:: leaves = true /* a signal will come */
#endif
	fi;
	claims++;
	do
	:: receive(TRY, LONG);
		if
		:: n != 0 && heard -> break
		:: else -> n = 0
		fi;
		arm(true);
		look(LONG);
		if
		:: n != 0 && heard -> break
		:: n != 0 && !heard -> n = 0
		:: n == 0 ->
end_asleep:		if
			:: heard || leaves -> break
			:: bell[1] -> bell[1] = false
			fi
		fi
	od;
	n = 0;
	driven = true;
#ifdef LEAVE_ONCE
	atomic { claims--; w = (claims != 0) };
	arm(w);
#else
	claims--;
	arm_sleeper();
#endif
#ifdef LEAVE_SHORT
	look(SHORT)
#else
	do
	:: look(SHORT);
		if
		:: n == 0 -> break
		:: else -> n = 0
		fi
	od
#endif
}

#ifdef LEAVE_ALONE
#define OTHERS threads
#else
#define OTHERS sleepers
#endif

/* It hears of its packets from whoever drives, if another one has the claim. */
proctype sleeper()
{
	bit n;
	byte mine;
	bool w, leaves, claimed, others, ticks;

	if
	:: leaves = false
#ifndef QUIET
	:: leaves = true
#endif
	fi;
	sleepers++;
	threads++;
	atomic {
		claimed = (claims == 0);
		if
		:: claimed -> claims = 1
		:: else -> skip
		fi
	};
	do
	:: !claimed ->
end_waits:	heard || leaves;
		break
	:: claimed ->
		arm(true);
		look(LONG);
		if
		:: n != 0 && heard -> break
		:: n != 0 && !heard -> n = 0
		:: n == 0 ->
end_asleep:		if
			:: heard || leaves -> break
			:: bell[1] -> bell[1] = false
			fi
		fi
	od;
	n = 0;
	atomic { sleepers--; threads--; others = (OTHERS != 0) };
	if
	:: claimed ->
		driven = true;
#ifdef TICK_EARLY
		ticks = ticking;
		atomic { claims--; others = (others || claims != 0) };
		others = (others || OTHERS != 0);
#else
		atomic { claims--; others = (others || claims != 0) };
		others = (others || OTHERS != 0);
		ticks = ticking;
#endif
		if
		:: others || !ticks ->
			arm_sleeper();
			do
			:: look(SHORT);
				if
				:: n == 0 -> break
				:: else -> n = 0
				fi
			od
		:: else -> skip
		fi
	:: else -> skip
	fi
}

/* Before its last poll, or instead of it, it arms its CQ; then it sleeps on a descriptor that nobody here knows, and
 * hears by its CQ's event of the first sender's packets. */
proctype poller(byte left)
{
	bit n;
	byte mine;
	bool w;

	do
	:: left > 0 ->
		driven = true;
		receive(TRY, SHORT);
		n = 0;
		left--;
		if
		:: left == 1 ->
#ifndef COUNT_LATE
			atomic { cq_armed = true; sleepers++ };
#endif
			w = (claims == 0);
			if
			:: w -> arm(false); w = false
			:: else -> skip
			fi;
#ifdef COUNT_LATE
			atomic { cq_armed = true; sleepers++ };
#endif
#ifndef ARM_BLIND
			w = ticking;
			do
			:: w -> look(SHORT);
				w = (n != 0);
				n = 0
			:: else -> break
			od;
#endif
			if
			:: left = 0 /* an eager CQ's consumer */
			:: skip
			fi
		:: else -> skip
		fi
	:: else -> break
	od;
end_asleep:
	!cq_armed
}

proctype opener()
{
	atomic { !receiving -> receiving = true };
	linked[1] = true;
	receiving = false;
#ifndef OPEN_SILENT
	kicked = true
#endif
}

init {
	atomic {
		linked[0] = true;
#ifdef OPENER
		run opener();
#else
		linked[1] = true;
#endif
		run sender(0, FIRST);
		run sender(1, SECOND);
		run engine();
#if WAITERS > 0
		run waiter();
#endif
#if WAITERS > 1
		run waiter();
#endif
#if SLEEPERS > 0
		run sleeper();
#endif
#if SLEEPERS > 1
		run sleeper();
#endif
#if POLLS > 0
		run poller(POLLS)
#endif
	};
	/* Nothing else can move. */
	timeout -> assert(waiting[0] == 0 && waiting[1] == 0)
}
