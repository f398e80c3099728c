# Completion of `anyverbs` for bash. It asks the command itself, so it knows what that knows: `anyverbs help` for commands,
# `anyverbs help COMMAND` for options and words, `anyverbs help settings` for variables.

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

_anyverbs() {
	local command=$1 word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} sub=${COMP_WORDS[1]}
	COMPREPLY=()
	if [ "$COMP_CWORD" = 1 ]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_anyverbs_commands "$command")" -- "$word")
		return
	fi
	case $sub in
	help)
		mapfile -t COMPREPLY < <(compgen -W "$(_anyverbs_commands "$command") settings" -- "$word")
		return
		;;
	run)
		_anyverbs_run && return
		if [ "$word" = = ] || [ "$before" = = ]; then
			[ "$word" != = ] || { before=$word; word=; }
			sub=${COMP_WORDS[COMP_CWORD - 1]}
			[ "$sub" != = ] || sub=${COMP_WORDS[COMP_CWORD - 2]}
			mapfile -t COMPREPLY < <(compgen -W "$(_anyverbs_values "$command" "$sub")" -- "$word")
			return
		fi
		case $word in
		-*) ;;
		ANYVERBS_*)
			mapfile -t COMPREPLY < <(compgen -W "$(_anyverbs_settings "$command")" -- "$word")
			compopt -o nospace 2>/dev/null
			return
			;;
		*)
			mapfile -t COMPREPLY < <(compgen -c -- "$word")
			return
			;;
		esac
		;;
	capture)
		case $word in
		-*) ;;
		*)
			mapfile -t COMPREPLY < <(compgen -f -- "$word")
			return
			;;
		esac
		;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$(_anyverbs_words "$command" "$sub")" -- "$word")
}

complete -F _anyverbs anyverbs
