"""`python -m ottla.config` prints every setting as Markdown."""

from ottla.config.documentation import configuration_page

if __name__ == "__main__":
    print(configuration_page(), end="")
