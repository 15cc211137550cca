# Releases, installation, and what is made of the program: packages and pictures.
PREFIX  ?= /usr/local
DESTDIR ?=

.PHONY: install
install: build ## Build agentstream, and install it with its completion below PREFIX (/usr/local)
	@install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/agentstream
	for at in bash:bash-completion/completions/agentstream zsh:zsh/site-functions/_agentstream fish:fish/vendor_completions.d/agentstream.fish; do
		install -d "$(DESTDIR)$(PREFIX)/share/$$(dirname "$${at#*:}")"
		$(BIN) completion "$${at%%:*}" >"$(DESTDIR)$(PREFIX)/share/$${at#*:}"
	done
	echo "$(DESTDIR)$(PREFIX)/bin/agentstream"

SYSTEMS ?=

.PHONY: release
release: ## Build dist/: binaries for linux, macOS and Windows, SBOMs, deb, rpm, npm and Python packages, check sums, image (SYSTEMS="linux/amd64")
	@tools/release $(VERSION) $(SYSTEMS)

.PHONY: release-check
release-check: js python ## Make a release for linux/amd64 twice, and hold it and docs/install.md to what users are told (as root, for chroot)
	@tools/needs rpm systemd-analyze
	go test -tags release -v -count=1 -timeout 40m -run 'TestRelease$$|TestInstallPage$$' ./internal/e2e

.PHONY: first-run
first-run: js ## Go a new user's way, with times, and run what tutorial, pages, console and --help print (ARCHIVE=dist/….tar.gz)
	@tools/first-run $(ARCHIVE)
	go test -count=1 -timeout 20m -run 'TestExamples|TestFirstLook|TestTutorial|TestPrintedCurl|TestDevForOthers|TestDemoPlays|TestRecord' ./cmd/agentstream
	go test -count=1 -timeout 20m -run 'TestProxyPage|TestWatchRecipes|TestExamples' ./internal/e2e

ARCHIVE ?=

SHOTS ?= $(CURDIR)/bin/screens

.PHONY: screens
screens: js ## Look at each screen of the console in both themes and three sizes: axe-core, nothing too wide, keys, pictures (SHOTS=folder)
	@mkdir -p '$(SHOTS)'
	AGENTSTREAM_SHOTS='$(SHOTS)' go test -count=1 -v -timeout 30m -run 'TestConsole$$' ./internal/e2e | sed -n 's/^ *ok /ok /p; s/^ *FAILED /FAILED /p; /^--- /p; /^FAIL/p'

.PHONY: pictures
pictures: screens build ## Take the pictures of docs/pictures anew: each screen of the console, and the moving one (ffmpeg)
	@for kind in light dark phone; do cp '$(SHOTS)'/console-*-$$kind.png docs/pictures/; done
	tools/moving-picture $(BIN) docs/pictures/console.gif
