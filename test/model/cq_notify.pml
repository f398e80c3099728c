/* cq_notify.pml: the protocol of arming, adding, polling and waiting of src/queue/cq.c, for spin.
 *
 * Two producers add completions; two consumers follow the book: drain, arm, drain again if the arm
 * says so, else wait for an event of the channel that they share. A bystander arms for solicited
 * completions at any moment and never waits. Each shared access that the code makes without a lock is a step of its own.
 * Checked: no run ends with a completion in the ring and every consumer asleep (an invalid end
 * state), none is handed out twice, none is forgotten; no arm raises two events, and none for completions that it does not ask for. The model is sequentially consistent; that
 * the code may be looked at so follows from its locks and is ThreadSanitizer's to watch.
 *
 * With HAND the consumers receive by themselves, as soft_cq_drive_and_poll does: while nobody minds and the ring is empty, what they
 * receive of one work queue is handed straight to them (cq_hand); the engine's thread receives beside them, and whoever receives
 * adds under the path's lock. One producer is left, of another queue. Checked besides: completions of the work queue are
 * taken in order; none is handed over that was received after an arm had been answered, for its event is owed, nor after the CQ
 * had overflowed.
 *
 * Variants, by -D:
 *   IGNORE_MISSED  consumers ignore the return value of the arm: must lose a wake-up when strict
 *   EAGER          an arm with completions waiting fires at once and is consumed: saves even such consumers. (They drain
 *                  between an event and the arm, so what events have announced does not matter.)
 *   EAGER_KEEPS    with EAGER, such an arm is not consumed: must raise a second event for one arm
 *   EAGER_ANY      with EAGER, a solicited arm fires for whatever waits: must raise an event that nobody asked for
 *   WEAKEN         a solicited arm replaces a pending next-completion arm: must lose a wake-up
 *   ONE_CONSUMER   instead of two
 *   UNLOCKED_ARM   the arm does not take the producers' lock: must lose a wake-up
 *   HAND           see above
 *   CAPACITY=n     of the ring; what finds no room is refused, and everything after it
 *   UNMINDED       with HAND, without a look at who minds: must hand over what owes an event
 *   MINDED_BEFORE  with HAND, that look is taken when the poll begins: likewise
 *   ARM_FORGETS    with HAND, an arm is not noted as something to mind: likewise
 *   PAST_THE_RING  with HAND, whatever the ring holds: must break the order
 *   REFUSE_FORGETS with HAND and a small CAPACITY, an overflow is not noted: must hand over after it
 */
#ifndef WIRE
#define WIRE 2             /* the work queue's messages */
#endif
#define TOTAL (WIRE + 1)   /* completions: those, without HAND of another producer; and one of a producer */
#ifndef ROOM
#define ROOM 2             /* how many completions a poll asks for */
#endif
#ifndef CAPACITY
#define CAPACITY 4
#endif
#define NONE 0
#define SOLICITED 1
#define NEXT_COMP 2

byte head, tail, taken, refused, events, armed;
byte ring[CAPACITY];       /* numbers of the work queue's completions; 0: one of a producer's */
byte last;                 /* the last of the work queue's that was taken */
bool lock, poll_lock;
bool overflowed, ring_only;
byte sent, received;       /* of the work queue's messages */
bool path_lock;
bool owed, told;           /* an arm has been answered and its event is to come; the overflow has been told */
byte arms;                 /* how often the former has become true */
bool solicited_waits;      /* the last solicited completion is in the ring; eager arms only */

inline acquire(l)
{
	atomic {
		!l;
		l = true
	}
}

inline fire_if(condition)
{
	if
	:: condition -> events++ /* channel_post, without the CQ's locks */
	:: else -> skip
	fi
}

#define DONE (taken + refused == TOTAL)

#ifdef HAND
inline mind()
{
	ring_only = (armed != NONE || overflowed)
}
#else
#define mind() skip
#endif

/* A completion has come to its consumer. */
inline take(number)
{
	atomic {
		taken++;
		assert(number == 0 || number > last);
		if
		:: number != 0 -> last = number
		:: else -> skip
		fi
	}
}

/* cq_push */
inline push(number, solicited)
{
	acquire(lock);
	if
	:: overflowed || head - tail == CAPACITY ->
		overflowed = true;
#ifndef REFUSE_FORGETS
		mind();
#endif
		atomic {
			refused++;
			told = true;
			lock = false
		}
	:: else ->
		fire = (armed == NEXT_COMP || (armed == SOLICITED && solicited));
		if
		:: fire ->
			assert(owed || armed == SOLICITED); /* a next-completion arm raises one event */
			armed = NONE;
			atomic {
				owed = false;
				mind()
			}
		:: else -> skip
		fi;
		solicited_waits = solicited_waits || solicited;
		atomic {
			ring[head % CAPACITY] = number;
			head++ /* the release of cq_write */
		}
		lock = false;
		fire_if(fire)
	fi
}

/* The first completion of each producer is solicited or not, the others are not. */
proctype producer(byte left)
{
	bool solicited, fire;

	if
	:: solicited = true
	:: solicited = false
	fi;
	do
	:: left > 0 ->
		push(0, solicited);
		solicited = false;
		left--
	:: else -> break
	od
}

/* cq_pop(1): looks without a lock, then takes under poll_lock. */
inline pop(got)
{
	seen_head = head;
	got = (seen_head != tail);
	if
	:: got ->
		acquire(poll_lock);
		got = (head != tail);
		if
		:: got ->
			atomic {
				take(ring[tail % CAPACITY]);
				tail++
			}
			solicited_waits = (solicited_waits && head != tail)
		:: else -> skip
		fi;
		poll_lock = false
	:: else -> skip
	fi
}

#ifdef HAND
/* Receives all that is there, as one thread at a time does. `room`: so many completions this thread waits for. */
inline drive()
{
	if
	:: atomic { !path_lock -> path_lock = true };
		do
		:: received < sent ->
			atomic {
				received++;
				number = received;
				owed_then = owed;
				arms_then = arms;
				told_then = told
			}
#if defined(PAST_THE_RING)
			hand = !ring_only;
#elif defined(UNMINDED)
			seen_head = head;
			hand = (seen_head == tail);
#elif defined(MINDED_BEFORE)
			seen_head = head;
			hand = (!ring_only_before && seen_head == tail);
#else
			hand = !ring_only;
			seen_head = head;
			hand = (hand && seen_head == tail);
#endif
			if
			:: hand && room > 0 ->
				atomic {
					assert(!told_then && !(owed_then && owed && arms_then == arms));
					room--;
					take(number)
				}
			:: else -> push(number, false)
			fi;
			d_step { /* what is not looked at again makes no states */
				number = 0;
				arms_then = 0;
				seen_head = 0;
				owed_then = false;
				told_then = false;
				hand = false;
				fire = false
			}
		:: else -> break
		od;
		path_lock = false
	:: path_lock -> skip /* another thread is at it */
	fi
}

/* soft_cq_drive_and_poll, or cq_pop of what is there. */
inline poll(got)
{
	room = 0;
	if
	:: head == tail ->
		room = ROOM;
#ifdef MINDED_BEFORE
		ring_only_before = ring_only;
#endif
		drive()
	:: else -> skip
	fi;
	handed = (room != 0 && room != ROOM);
	room = 0;
	pop(got);
	atomic {
		got = (got || handed);
		handed = false;
		seen_head = 0
	}
}
#else
#define poll(got) pop(got)
#endif

/* cq_arm with CQ_REPORT_MISSED. */
inline arm(kind, missed)
{
#ifndef UNLOCKED_ARM
	acquire(lock);
#endif
	if
#ifndef WEAKEN
	:: armed == NEXT_COMP -> skip
#endif
	:: else -> armed = kind
	fi;
#ifndef ARM_FORGETS
	mind();
#endif
	missed = (head != tail);
	fire_late = false;
#ifdef EAGER
	atomic {
#ifdef EAGER_ANY
		fire_late = missed;
#else
		fire_late = (missed && (armed == NEXT_COMP || solicited_waits));
#endif
		assert(!fire_late || armed == NEXT_COMP || solicited_waits)
	};
	if
	:: fire_late ->
#ifndef EAGER_KEEPS
		armed = NONE;
#endif
		mind()
	:: else -> skip
	fi;
#endif
	atomic {
		if
		:: !owed && armed == NEXT_COMP -> arms++
		:: else -> skip
		fi;
		owed = (armed == NEXT_COMP && !fire_late);
#ifndef UNLOCKED_ARM
		lock = false;
#endif
	}
	fire_if(fire_late)
}

#ifdef HAND
#define RECEIVES byte number, arms_then, room; bool owed_then, told_then, hand, handed, ring_only_before, fire

proctype engine()
{
	byte seen_head;
	RECEIVES;

	do
	:: received < sent -> drive()
	:: received == WIRE -> break
	od
}

proctype peer()
{
	do
	:: sent < WIRE -> sent++
	:: else -> break
	od
}
#else
#define RECEIVES skip
#endif

proctype consumer()
{
	byte seen_head;
	bool got, missed, fire_late;
	RECEIVES;

	do
	:: !DONE ->
		got = true;
		do
		:: got -> poll(got)
		:: else -> break
		od;
		arm(NEXT_COMP, missed);
#ifdef IGNORE_MISSED
		missed = false;
#endif
		if
		:: missed -> skip
		:: else ->
			if
			:: atomic { events > 0 -> events-- }
			:: DONE -> skip /* the other one has seen the last: nothing is missing */
			fi
		fi
	:: else -> break
	od;
	assert(DONE && head == tail)
}

proctype bystander()
{
	bool missed, fire_late;

	arm(SOLICITED, missed)
}

init {
	atomic {
#ifdef HAND
		run peer();
		run engine();
#else
		run producer(WIRE);
#endif
		run producer(1);
#ifndef HAND
		run bystander();
#endif
#ifndef ONE_CONSUMER
		run consumer();
#endif
		run consumer()
	}
}
