/* rest.pml: an acknowledgement that came behind a message waits in the inbox for the next poll,
 * but only while the engine's thread looks in at every tick and no consumer sleeps; and timers,
 * which then kick nobody: `ticking` of src/seat/progress.c and src/path/udp/receive.c, for spin.
 *
 * Messages come off the wire, each with an acknowledgement behind it. Threads that poll take them,
 * one thing at a time, and then do something else without another look; one sets a timer. A
 * consumer arms its CQ at any moment and sleeps. The engine's thread ticks while it sees that
 * somebody polls, and else sleeps until a datagram, a kick or the timer that it knows of; once the
 * consumer sleeps nothing but a timer waits for the tick. Checked: no acknowledgement is lost or overtaken, and when nothing
 * can move any more none waits, nor does a datagram or a timer. The model is sequentially
 * consistent; what makes that true of the code is named with its partner:
 *
 * here                     in the code                                     partner
 * receive                  udp_poll, receive_some, receive_rest, which     each other, by poll_lock:
 *                          read `ticking` with poll_lock held              who receives next sees
 *                                                                          the rest, and `ticking`
 *                                                                          as it was before
 * ticking = ...; receive(  progress_set_ticking, then ibt_look, in         receive: it comes before
 *   MUST)                  progress_prepare_sleep                          that look and is seen, or
 *                                                                          after and sees no ticking
 * sleepers; receive(MUST)  cq_arm, then progress_look_in_tick              receive: likewise
 * ticking = ...; knows     the fence of progress_set_ticking               setter
 *   = timer
 * setter                   timer_set, the fence of progress_timer_kick     knows = timer
 * engine                   progress_main, progress_pass, progress_prepare_sleep
 * poller                   progress_drive
 *
 * By -D: MESSAGES=n, POLLERS=1..2 who poll POLLS=n times each.
 * Mistakes, by -D, each of which must be found:
 *   READ_EARLY    who receives reads `ticking` before he has poll_lock
 *   LOOK_FIRST    the engine's thread looks for the last time, and then ticks no more
 *   TRY_LOOK      that look gives up if another thread is receiving
 *   SOCKETS_ONLY  that look asks the sockets, and not the inbox
 *   LATER_FIRST   who receives takes what has come later before what waits
 *   KICK_EARLY    who sets a timer reads `ticking` before it is set (a fence missing)
 *   ASKS_EARLY    the engine's thread asks for the next timer before it ticks no more (likewise)
 *   TICK_DEAF     for a tick it hears of no datagram, whoever sleeps
 *   KEEP_ALWAYS   who receives leaves the acknowledgement there although the consumer sleeps
 *   LEAVE_REST    the consumer does not look behind its arm
 *   LOOK_EARLY    it looks, and then counts as a sleeper
 */
#ifndef MESSAGES
#define MESSAGES 2
#endif
#ifndef POLLERS
#define POLLERS 1
#endif
#ifndef POLLS
#define POLLS 2
#endif

byte waiting;    /* messages in the socket, each with an acknowledgement behind it */
bool rest;       /* one that has been taken waits in the inbox: udp_inbox.rest, any_rest */
bool ticking;
bool sleepers;   /* the consumer has armed its CQ */
bool driven;     /* `drives` is not what the engine's thread saw last */
bool receiving;  /* poll_lock */
bool timer;      /* one is set */
bool kicked;

#define MUST true
#define TRY false

#ifdef LATER_FIRST
#define REST_FIRST (rest && waiting == 0)
#else
#define REST_FIRST rest
#endif

#ifdef KEEP_ALWAYS
#define MAY_WAIT ticking
#else
#define MAY_WAIT (ticking && !sleepers)
#endif

/* n: has any been taken? */
inline receive(must)
{
#ifdef READ_EARLY
	t = MAY_WAIT;
#endif
	if
	:: atomic { !receiving -> receiving = true };
		if
		:: REST_FIRST -> rest = false; n = 1
		:: !REST_FIRST && waiting > 0 ->
			waiting--;
			n = 1;
#ifndef READ_EARLY
			t = MAY_WAIT;
#endif
			if
			:: t -> assert(!rest); rest = true
			:: else -> assert(!rest) /* at once, and nothing older waits */
			fi
		:: else -> skip
		fi;
		atomic { t = false; receiving = false }
	:: !(must) && receiving -> t = false
	fi
}

inline look()
{
#ifdef SOCKETS_ONLY
	if
	:: waiting > 0 -> receive(MUST)
	:: else -> skip
	fi
#else
#ifdef TRY_LOOK
	receive(TRY)
#else
	receive(MUST)
#endif
#endif
}

/* What it has taken is not kept. */
#define IF_ANY_GO(label) \
	if \
	:: n != 0 -> n = 0; goto label \
	:: else -> skip \
	fi

proctype engine()
{
	bit n;
	bool t, knows;

pass:	receive(TRY);
	IF_ANY_GO(pass);
	timer = false; /* it has run */
	if
	:: atomic { driven -> driven = false };
		ticking = true;
		if
		:: sleepers ->
			look();
			IF_ANY_GO(pass)
		:: else -> skip
		fi;
end_ticks:
#ifdef TICK_DEAF
		kicked || timer || !sleepers;
#else
		kicked || timer || !sleepers || waiting > 0;
#endif
		goto pass
	:: else -> skip
	fi;
#ifdef ASKS_EARLY
	knows = timer;
#endif
#ifdef LOOK_FIRST
	look();
	IF_ANY_GO(pass);
	ticking = false;
#else
	ticking = false;
	look();
	IF_ANY_GO(pass);
#endif
#ifndef ASKS_EARLY
	knows = timer;
#endif
end_asleep:
	waiting > 0 || kicked || knows;
	atomic { kicked = false; knows = false };
	goto pass
}

/* Then it sleeps on a descriptor that nobody here knows. */
proctype poller(byte left)
{
	bit n;
	bool t;

	do
	:: left > 0 ->
		driven = true;
		receive(TRY);
		atomic { n = 0; left-- }
	:: else -> break
	od
}

/* After an arm it polls no more: an event is to wake it. */
proctype consumer()
{
	bit n;
	bool t, ticks;

	if
	:: goto none /* there may be no consumer */
	:: skip
	fi;
#ifndef LOOK_EARLY
	sleepers = true;
#endif
#ifndef LEAVE_REST
	ticks = ticking;
	do
	:: ticks -> look();
		ticks = (n != 0);
		n = 0
	:: else -> break
	od;
#endif
#ifdef LOOK_EARLY
	sleepers = true;
#endif
none:	skip
}

proctype setter()
{
	bool t;

#ifdef KICK_EARLY
	t = ticking;
	timer = true;
#else
	timer = true;
	t = ticking;
#endif
	if
	:: t -> skip
	:: else -> kicked = true
	fi
}

proctype wire(byte left)
{
	do
	:: left > 0 -> atomic { left--; waiting++ }
	:: else -> break
	od
}

init {
	atomic {
		run wire(MESSAGES);
		run setter();
		run engine();
		run consumer();
		run poller(POLLS);
#if POLLERS > 1
		run poller(POLLS)
#endif
	};
	/* Nothing else can move. */
	timeout -> assert(!rest && waiting == 0 && !timer)
}
