"""python -m regard.corpora.recall OUT"""

from .generate import main

if __name__ == "__main__":
    main()
