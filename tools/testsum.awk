# Reads `go test -v` and prints what a person needs: one line for each package, everything that a
# failed package said, every skipped test with its reason, and the number of tests at the end.
# The last it prints is what the failed tests said themselves, without what their processes logged: a long
# output is often seen by its end alone. It exits with 1 when anything failed, or when nothing ran at all. The failed tests of a package are
# written to the file `again`, as one line: the package and what -run takes. They are not when a package
# failed for anything else, such as a data race, a leak, a panic or a time-out, or when over five failed.

function flush_failed() { printf "%s", said; said = "" }
function forget() { split("", line); split("", lines); name = "" }

# What a failed test said, as the end of the output shows it: its last 20 lines, none over 400 characters.
function words_of(test,    first, n, text) {
	first = lines[test] > 20 ? lines[test] - 19 : 1
	text = test "\n"
	for (n = first; n <= lines[test]; n++) text = text "  " substr(line[test, n], 1, 400) "\n"
	return text
}

/^=== / { heard = ""; name = $3; next }             # RUN, PAUSE, CONT, NAME
/^ *--- PASS: / { if ($0 !~ /^ /) passed++; else subpassed++; next }
/^ *--- SKIP: / {
	if ($0 !~ /^ /) skipped++; else subskipped++
	said = said $0 "\n"; skips = skips $0 "\n" heard; heard = ""; next   # its reason stands before it
}
/^ *--- FAIL: / {
	if ($0 !~ /^ /) { failed++; names = names (names == "" ? "" : "|") $3 } else subfailed++
	if (lines[$3] > 0) words = words words_of($3)
	said = said $0 "\n"; next
}
/^ok  \t/ { print; fflush(); packages++; said = ""; forget(); next }
/^\?   \t/ || /^\t.*coverage: / { said = ""; forget(); next }   # no test files
/^FAIL\t/ {
	flush_failed(); print; fflush(); broken++
	if (names == "" || final) hopeless = 1
	else chances = chances $2 " ^(" names ")$\n"
	names = ""; final = 0; forget(); next
}
/^WARNING: DATA RACE/ || /^panic: / || /^fatal error: / { final = 1 }
/^(PASS|FAIL)$/ { next }
/^#/ || /: no required module|: cannot find/ { print; next }       # what the compiler says
{ said = said $0 "\n"; heard = heard $0 "\n" }
!/^ *time=/ && name != "" { line[name, ++lines[name]] = $0 }

END {
	flush_failed()                             # a run that ended without a verdict
	if (words != "") printf "what failed:\n%s", words
	if (skips != "") printf "skipped:\n%s", skips
	printf "%d packages: %d tests and %d subtests passed, %d failed, %d skipped\n", packages + broken, \
		passed, subpassed, failed + subfailed, skipped + subskipped
	if (again != "" && !hopeless && failed <= 5) printf "%s", chances >again
	if (broken > 0 || failed > 0) { print "FAIL"; exit 1 }
	if (packages == 0) { print "FAIL: no package was tested"; exit 1 }
	print "ok"
}
