package main

import (
	"regexp"
	"strings"
)

// wordings turn the parser's errors into sentences that say what something must be, and what it was. The first one that
// fits is taken.
var wordings = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`^(.+): expected duration but got (".*?"|[^:]*).*$`), "$1 must be a duration such as 90s or 24h, not $2"},
	{regexp.MustCompile(`^(.+): expected an? valid \d+ bit int but got (".*?")$`), "$1 must be a whole number, not $2"},
	{regexp.MustCompile(`^(.+): expected an? valid \d+ bit uint but got (".*?")$`), "$1 must be a whole number from 0 on, not $2"},
	{regexp.MustCompile(`^(.+): expected an? int but got (".*?").*$`), "$1 must be a whole number, not $2"},
	{regexp.MustCompile(`^(.+): expected an? float but got (".*?").*$`), "$1 must be a number, not $2"},
	{regexp.MustCompile(`^(.+): expected float value but got ("-[^"]*") \(short flag\).*$`),
		"$1 must be a number, not $2; a negative one follows an equals sign"},
	{regexp.MustCompile(`^(.+): expected \S+ value but got ("-[^"]*") \(.* flag\).*$`),
		"$1 must have a value, not $2; one that begins with a hyphen follows an equals sign"},
	{regexp.MustCompile(`^(.+): bool value must be .* but got (".*?")$`), "$1 must be true or false, not $2"},
	{regexp.MustCompile(`^(.+): expected (bool|a bool) but got (".*?").*$`), "$1 must be true or false, not $3"},
	{regexp.MustCompile(`^(.+): missing value, expecting.*$`), "$1 must have a value, and has none"},
	{regexp.MustCompile(`^(\S+) must be one of (.+) but got (".*?")$`), "$1 must be one of $2, not $3"},
	{regexp.MustCompile(`^expected "(.+)"$`), "$1 is missing"},
	{regexp.MustCompile(`^expected (one of .+)$`), "a command must follow: $1"},
	{regexp.MustCompile(`^missing flags: (.+)$`), "$1 must be given"},
	{regexp.MustCompile(`^unexpected argument ([^ ,]+)(.*)$`), "there is no command or argument $1$2"},
	{regexp.MustCompile(`^unknown flag ([^ ,]+)(.*)$`), "there is no flag $1$2"},
}

// usageText is an error of the command line as it is printed.
func usageText(err error) string {
	text := err.Error()
	for _, w := range wordings {
		if !w.from.MatchString(text) {
			continue
		}
		text = w.from.ReplaceAllString(text, w.to)
		break
	}
	return strings.ReplaceAll(strings.ReplaceAll(text, `","`, `", "`), " (string)", "")
}

// dialled is what the standard library repeats of an address that the error has named.
var dialled = regexp.MustCompile(`dial tcp [^ ]+: connect: `)

// occupied is an address that the standard library could not listen on, after the flag that has it.
var occupied = regexp.MustCompile(`^(--[a-z-]+): listen tcp ([^ ]+): bind: `)

// packages name themselves in errors, which is of no use to a person.
var packages = strings.NewReplacer(
	"natskit: ", "", "natsjs: ", "", "producers: ", "", "persister: ", "", "fanout: ", "", "poll: ", "", "blob: ", "",
)

// errorText is an error as it is printed.
func errorText(err error) string {
	text := occupied.ReplaceAllString(packages.Replace(err.Error()), "$1 $2: ")
	if strings.Contains(text, "no server at") {
		text = dialled.ReplaceAllString(text, "")
	}
	return text
}
