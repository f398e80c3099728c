# Completion of `anyverbs` for bash. It asks the command itself, so it knows what that knows: `anyverbs help` for commands,
# `anyverbs help COMMAND` for options and words, `anyverbs help settings` for variables, and the running node or fabric for
# names of devices, processes, hosts and switches.

# The commands, from lines "  NAME  text".
_anyverbs_commands() {
	"$1" help 2>/dev/null | sed -n 's/^  \([a-z]\+\) .*/\1/p'
}

# The settings, from lines "  NAME=value".
_anyverbs_settings() {
	"$1" help settings 2>/dev/null | sed -n 's/^  \(ANYVERBS_[A-Z_]*=\).*/\1/p'
}

# Options of command $2, and the words of its usage line that are no placeholders.
_anyverbs_words() {
	"$1" help "$2" 2>/dev/null | sed -n '1,/^$/p' | tr -s '][|, \n' '\n' | grep -E '^(--)?[a-z]+[a-z-]*$' | grep -vxE "usage:|anyverbs|$2"
	"$1" help "$2" 2>/dev/null | grep -oE -- '--[a-z]+[a-z-]*'
}

# Values of the setting NAME: words that `help settings` lists behind it.
_anyverbs_values() {
	"$1" help settings 2>/dev/null | sed -n "s/^  $2=\([a-z0-9|,]*\)$/\1/p" | tr '|' '\n'
}

# The first word of each node of the fabric $2 (empty: the default one) whose type fits the pattern $3.
_anyverbs_nodes() {
	"$1" fabric ${2:+--name "$2"} show 2>/dev/null | sed -nE "s/^($3) ([^ ]+).*/\2/p" | sort -u
}

# Names of the node's devices, PIDs of its processes, and the queue pairs of process $2.
_anyverbs_devices() {
	"$1" device list 2>/dev/null | cut -d' ' -f1
}

_anyverbs_pids() {
	"$1" status 2>/dev/null | awk '/^ +PID +COMMAND/ { on = 1; next } on && $1 ~ /^[0-9]+$/ { print $1 }'
}

_anyverbs_qpns() {
	"$1" status 2>/dev/null | awk -v pid="$2" '$1 ~ /^[0-9]+$/ { on = $1 == pid } on && $1 == "QP" { print $2 }'
}

# Verbs of a command, and the options of its verb $3: lines "  VERB [--option | WORD]...   text".
_anyverbs_verbs() {
	"$1" help "$2" 2>/dev/null | sed -nE 's/^  ([a-z]+) .*/\1/p'
}

_anyverbs_verb_options() {
	"$1" help "$2" 2>/dev/null | sed -n "s/^  $3 //p" | grep -oE -- '--[a-z]+(-[a-z]+)*'
}

# Words that the help of command $2 lists behind the text $3, up to a full stop or the next option.
_anyverbs_listed() {
	"$1" help "$2" 2>/dev/null | awk -v head="$3" '
		on && (/^ *$/ || /^  --/) { exit }
		!on && index($0, head) { on = 1; $0 = substr($0, index($0, head) + length(head)) }
		on { print; if (/\.$/) exit }' | tr -s ' ,.' '\n' | grep -xE '[a-z0-9-]+' | grep -vxE 'a|or'
}

# Kinds of topologies, with the colon behind them.
_anyverbs_topologies() {
	"$1" help fabric 2>/dev/null | grep -oE '[a-z-]+:[[A-Z]' | tr -d 'A-Z['
}

# What follows `fabric`: the verb is the first word that is no option's.
_anyverbs_fabric() {
	local i name='' verb='' behind=0
	for ((i = 2; i < COMP_CWORD; i++)); do
		if [ "${COMP_WORDS[i]}" = --name ]; then
			i=$((i + 1)) name=${COMP_WORDS[i]}
		elif [ -z "$verb" ]; then
			verb=${COMP_WORDS[i]} behind=$i
		fi
	done
	[ "$before" != --name ] || return
	case $verb:$((COMP_CWORD - behind)) in
	:*) words="$(_anyverbs_verbs "$command" fabric) --name" ;;
	up:*)
		case $before in
		--topology)
			words=$(_anyverbs_topologies "$command")
			compopt -o nospace 2>/dev/null
			;;
		*) words=$(_anyverbs_verb_options "$command" fabric up) files=yes ;;
		esac
		;;
	link:1 | error:1 | fail:1 | reboot:1) words=$(_anyverbs_nodes "$command" "$name" 'ca|switch|router') ;;
	link:*) words='up down' ;;
	error:*) words=$(_anyverbs_listed "$command" fabric 'COUNTER: ') ;;
	*) words=$(_anyverbs_verb_options "$command" fabric "$verb") ;;
	esac
}

# What follows `run`: settings and options, then a program with a completion of its own.
_anyverbs_run() {
	local i=2
	while [ $i -lt "$COMP_CWORD" ]; do
		case ${COMP_WORDS[i]} in
		--host) i=$((i + 2)) ;;
		-*) i=$((i + 1)) ;;
		ANYVERBS_*) # a setting: NAME, and mostly = and a value, words of their own
			i=$((i + 1))
			[ "${COMP_WORDS[i]}" != = ] || i=$((i + 1))
			[ "${COMP_WORDS[i - 1]}" != = ] || [ $i -ge "$COMP_CWORD" ] || i=$((i + 1))
			;;
		*) break ;;
		esac
	done
	[ $i -lt "$COMP_CWORD" ] || return 1
	if declare -F _command_offset >/dev/null; then
		_command_offset $i
	else
		mapfile -t COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
	fi
}

# What follows `run` before the program: options, settings and their values, the program.
_anyverbs_before_program() {
	local name=$before
	if [ "$before" = --host ]; then
		words=$(_anyverbs_nodes "$command" "$ANYVERBS_NODE" ca)
		return
	fi
	if [ "$word" = = ] || [ "$before" = = ]; then
		[ "$word" != = ] || word=
		[ "$name" != = ] || name=${COMP_WORDS[COMP_CWORD - 2]}
		words=$(_anyverbs_values "$command" "$name")
		return
	fi
	case $word in
	-*) words=$(_anyverbs_words "$command" run) ;;
	ANYVERBS_*)
		words=$(_anyverbs_settings "$command")
		compopt -o nospace 2>/dev/null
		;;
	*) programs=yes ;;
	esac
}

# What follows `ipoib`: a verb, then options, of which --host has names.
_anyverbs_ipoib() {
	case $COMP_CWORD:$before in
	2:*) words=$("$command" help ipoib 2>/dev/null | sed -nE '/^$/q; s/.* anyverbs ipoib ([a-z]+).*/\1/p') ;;
	*:--host) words=$(_anyverbs_nodes "$command" "$ANYVERBS_NODE" ca) ;;
	*:--netns) words=$(ip netns list 2>/dev/null | cut -d' ' -f1) ;;
	*:--name | *:--address | *:--device | *:--port | *:--pkey) ;;
	*) words=$("$command" help ipoib 2>/dev/null | awk -v verb="${COMP_WORDS[2]}" '
		/^$/ { exit }
		/ anyverbs ipoib / { on = index($0, " ipoib " verb " ") }
		on' | grep -oE -- '--[a-z]+') ;;
	esac
}

_anyverbs_top() {
	case $before in
	--view) words=$(_anyverbs_listed "$command" top '--view VIEW ') ;;
	--interval | --sort | --filter) ;;
	*) words=$(_anyverbs_words "$command" top) ;;
	esac
}

# The words that may follow, into `words`; files= and programs=yes: those, too.
_anyverbs_choose() {
	case $sub:$COMP_CWORD in
	*:1) words=$(_anyverbs_commands "$command") ;;
	help:2) words="$(_anyverbs_commands "$command") settings" ;;
	help:*) ;;
	run:*) _anyverbs_before_program ;;
	fabric:*) _anyverbs_fabric ;;
	ipoib:*) _anyverbs_ipoib ;;
	top:*) _anyverbs_top ;;
	qp:2) words=$(_anyverbs_pids "$command") ;;
	qp:3) words=$(_anyverbs_qpns "$command" "$before") ;;
	device:3) [ "$before" != remove ] || words=$(_anyverbs_devices "$command") ;;
	port:2) words="$(_anyverbs_words "$command" port) $(_anyverbs_devices "$command")" ;;
	*)
		words=$(_anyverbs_words "$command" "$sub")
		[ "$sub" != capture ] || files=yes
		;;
	esac
}

_anyverbs() {
	local command=$1 word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} sub=${COMP_WORDS[1]} words='' files='' programs=''
	COMPREPLY=()
	[ "$sub" != run ] || [ "$COMP_CWORD" = 1 ] || ! _anyverbs_run || return
	_anyverbs_choose
	case $word in
	-*) files='' ;;
	esac
	mapfile -t COMPREPLY < <(compgen ${files:+-f} ${programs:+-c} -W "$words" -- "$word")
}

complete -F _anyverbs anyverbs
