/* cq_notify.pml: the protocol of arming, adding, polling and waiting of src/queue/cq.c, for spin.
 *
 * Two producers add completions; two consumers follow the book: drain, arm, drain again if the arm
 * says so, else wait for an event of the channel that they share. A bystander arms for solicited
 * completions at any moment and never waits. Each shared access that the code makes without a lock is a step of its own.
 * Checked: no run ends with a completion in the ring and every consumer asleep (an invalid end
 * state), none is handed out twice, none is forgotten. The model is sequentially consistent; that
 * the code may be looked at so follows from its locks and is ThreadSanitizer's to watch.
 *
 * Variants, by -D:
 *   IGNORE_MISSED  consumers ignore the return value of the arm: must lose a wake-up when strict
 *   EAGER          an arm with completions waiting fires at once: saves even such consumers
 *   WEAKEN         a solicited arm replaces a pending next-completion arm: must lose a wake-up
 *   ONE_CONSUMER   instead of two
 *   UNLOCKED_ARM   the arm does not take the producers' lock: must lose a wake-up
 */
#define TOTAL 3            /* completions: two of one producer, one of the other */
#define NONE 0
#define SOLICITED 1
#define NEXT_COMP 2

byte head, tail, taken, events, armed;
bool lock, poll_lock;
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

/* cq_push; the first completion of each producer is solicited or not, the others are not. */
proctype producer(byte left)
{
	bool solicited, fire;

	if
	:: solicited = true
	:: solicited = false
	fi;
	do
	:: left > 0 ->
		acquire(lock);
		fire = (armed == NEXT_COMP || (armed == SOLICITED && solicited));
		if
		:: fire -> armed = NONE
		:: else -> skip
		fi;
		solicited_waits = solicited_waits || solicited;
		head++; /* the release of cq_write */
		lock = false;
		fire_if(fire);
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
			tail++;
			taken++;
			solicited_waits = (solicited_waits && head != tail)
		:: else -> skip
		fi;
		poll_lock = false
	:: else -> skip
	fi
}

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
	missed = (head != tail);
	fire_late = false;
#ifdef EAGER
	fire_late = (missed && (armed == NEXT_COMP || solicited_waits));
	if
	:: fire_late -> armed = NONE
	:: else -> skip
	fi;
#endif
#ifndef UNLOCKED_ARM
	lock = false;
#endif
	fire_if(fire_late)
}

proctype consumer()
{
	byte seen_head;
	bool got, missed, fire_late;

	do
	:: taken < TOTAL ->
		got = true;
		do
		:: got -> pop(got)
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
			:: taken == TOTAL -> skip /* the other one has seen the last: nothing is missing */
			fi
		fi
	:: else -> break
	od;
	assert(taken == TOTAL && head == TOTAL && tail == TOTAL)
}

proctype bystander()
{
	bool missed, fire_late;

	arm(SOLICITED, missed)
}

init {
	atomic {
		run producer(2);
		run producer(1);
		run bystander();
#ifndef ONE_CONSUMER
		run consumer();
#endif
		run consumer()
	}
}
