import sys

from ottla.pipeline.demo import main

sys.exit(main())
