#compdef agentstream
# Completes agentstream in zsh: source <(agentstream completion zsh), behind compinit
_agentstream() {
	local -a found
	local line
	for line in "${(@f)$("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
		[[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
	done
	if (( ${#found} )); then
		_describe agentstream found
	else
		_files
	fi
}
if [[ ${funcstack[1]} == _agentstream ]]; then
	_agentstream "$@"
else
	compdef _agentstream agentstream
fi
