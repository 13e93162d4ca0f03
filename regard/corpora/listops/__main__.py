"""python -m regard.corpora.listops OUT"""

from .generate import main

if __name__ == "__main__":
    main()
