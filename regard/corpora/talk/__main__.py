"""python -m regard.corpora.talk OUT"""

from .generate import main

if __name__ == "__main__":
    main()
